"""Protobuf field numbers of every message that may arrive, one row a message. The types are the schemas' (schema.py).

A row lists JSON names in the order of their numbers, from 1 up without gaps; `9:name` goes on from 9. `+name` is a
message that JSON shows as fields of its owner; its own row is under that name. Source: the descriptors inside kubectl
1.33, and for fields newer than that the struct tags inside kubectl 1.36.
"""

ROWS = """
apps.v1.Deployment: metadata spec status
apps.v1.DeploymentCondition: type status 4:reason message lastUpdateTime lastTransitionTime
apps.v1.DeploymentSpec: replicas selector template strategy minReadySeconds revisionHistoryLimit paused
    9:progressDeadlineSeconds
apps.v1.DeploymentStatus: observedGeneration replicas updatedReplicas availableReplicas unavailableReplicas conditions
    readyReplicas collisionCount terminatingReplicas
apps.v1.DeploymentStrategy: type rollingUpdate
apps.v1.ReplicaSet: metadata spec status
apps.v1.ReplicaSetCondition: type status lastTransitionTime reason message
apps.v1.ReplicaSetSpec: replicas selector template minReadySeconds
apps.v1.ReplicaSetStatus: replicas fullyLabeledReplicas observedGeneration readyReplicas availableReplicas conditions
    terminatingReplicas
apps.v1.RollingUpdateDeployment: maxUnavailable maxSurge
authentication.v1.SelfSubjectReview: metadata status
authentication.v1.SelfSubjectReviewStatus: userInfo
authentication.v1.UserInfo: username uid groups extra
authorization.v1.FieldSelectorAttributes: rawSelector requirements
authorization.v1.LabelSelectorAttributes: rawSelector requirements
authorization.v1.NonResourceAttributes: path verb
authorization.v1.ResourceAttributes: namespace verb group version resource subresource name fieldSelector labelSelector
authorization.v1.SelfSubjectAccessReview: metadata spec status
authorization.v1.SelfSubjectAccessReviewSpec: resourceAttributes nonResourceAttributes
authorization.v1.SubjectAccessReviewStatus: allowed reason evaluationError denied
autoscaling.v1.Scale: metadata spec status
autoscaling.v1.ScaleSpec: replicas
autoscaling.v1.ScaleStatus: replicas selector
coordination.v1.Lease: metadata spec
coordination.v1.LeaseSpec: holderIdentity leaseDurationSeconds acquireTime renewTime leaseTransitions strategy
    preferredHolder
core.v1.AWSElasticBlockStoreVolumeSource: volumeID fsType partition readOnly
core.v1.Affinity: nodeAffinity podAffinity podAntiAffinity
core.v1.AppArmorProfile: type localhostProfile
core.v1.AttachedVolume: name devicePath
core.v1.AzureDiskVolumeSource: diskName diskURI cachingMode fsType readOnly kind
core.v1.AzureFileVolumeSource: secretName shareName readOnly
core.v1.Binding: metadata target
core.v1.CSIVolumeSource: driver readOnly fsType volumeAttributes nodePublishSecretRef
core.v1.Capabilities: add drop
core.v1.CephFSVolumeSource: monitors path user secretFile secretRef readOnly
core.v1.CinderVolumeSource: volumeID fsType readOnly secretRef
core.v1.ClientIPConfig: timeoutSeconds
core.v1.ClusterTrustBundleProjection: name signerName labelSelector path optional
core.v1.ConfigMap: metadata data binaryData immutable
core.v1.ConfigMapEnvSource: +localObjectReference optional
core.v1.ConfigMapKeySelector: +localObjectReference key optional
core.v1.ConfigMapNodeConfigSource: namespace name uid resourceVersion kubeletConfigKey
core.v1.ConfigMapProjection: +localObjectReference items 4:optional
core.v1.ConfigMapVolumeSource: +localObjectReference items defaultMode optional
core.v1.Container: name image command args workingDir ports env resources volumeMounts livenessProbe readinessProbe
    lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom
    terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy restartPolicyRules
core.v1.ContainerImage: names sizeBytes
core.v1.ContainerPort: name hostPort containerPort protocol hostIP
core.v1.ContainerResizePolicy: resourceName restartPolicy
core.v1.ContainerState: waiting running terminated
core.v1.ContainerStateRunning: startedAt
core.v1.ContainerStateTerminated: exitCode signal reason message startedAt finishedAt containerID
core.v1.ContainerStateWaiting: reason message
core.v1.ContainerStatus: name state lastState ready restartCount image imageID containerID started allocatedResources
    resources volumeMounts user allocatedResourcesStatus stopSignal
core.v1.ContainerUser: linux
core.v1.DaemonEndpoint: Port
core.v1.DownwardAPIProjection: items
core.v1.DownwardAPIVolumeFile: path fieldRef resourceFieldRef mode
core.v1.DownwardAPIVolumeSource: items defaultMode
core.v1.EmptyDirVolumeSource: medium sizeLimit
core.v1.EndpointAddress: ip targetRef hostname nodeName
core.v1.EndpointPort: name port protocol appProtocol
core.v1.EndpointSubset: addresses notReadyAddresses ports
core.v1.Endpoints: metadata subsets
core.v1.EnvFromSource: prefix configMapRef secretRef
core.v1.EnvVar: name value valueFrom
core.v1.EnvVarSource: fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef
core.v1.EphemeralContainer: +ephemeralContainerCommon targetContainerName
core.v1.EphemeralVolumeSource: volumeClaimTemplate
core.v1.Event: metadata involvedObject reason message source firstTimestamp lastTimestamp count type eventTime series
    action related reportingComponent reportingInstance
core.v1.EventSeries: count lastObservedTime
core.v1.EventSource: component host
core.v1.ExecAction: command
core.v1.FCVolumeSource: targetWWNs lun fsType readOnly wwids
core.v1.FlexVolumeSource: driver fsType secretRef readOnly options
core.v1.FlockerVolumeSource: datasetName datasetUUID
core.v1.GCEPersistentDiskVolumeSource: pdName fsType partition readOnly
core.v1.GRPCAction: port service
core.v1.GitRepoVolumeSource: repository revision directory
core.v1.GlusterfsVolumeSource: endpoints path readOnly
core.v1.HTTPGetAction: path port host scheme httpHeaders
core.v1.HTTPHeader: name value
core.v1.HostAlias: ip hostnames
core.v1.HostIP: ip
core.v1.HostPathVolumeSource: path type
core.v1.ISCSIVolumeSource: targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery 10:secretRef
    chapAuthSession initiatorName
core.v1.ImageVolumeSource: reference pullPolicy
core.v1.KeyToPath: key path mode
core.v1.Lifecycle: postStart preStop stopSignal
core.v1.LifecycleHandler: exec httpGet tcpSocket sleep
core.v1.LinuxContainerUser: uid gid supplementalGroups
core.v1.LoadBalancerIngress: ip hostname ipMode ports
core.v1.LoadBalancerStatus: ingress
core.v1.LocalObjectReference: name
core.v1.NFSVolumeSource: server path readOnly
core.v1.Namespace: metadata spec status
core.v1.NamespaceCondition: type status 4:lastTransitionTime reason message
core.v1.NamespaceSpec: finalizers
core.v1.NamespaceStatus: phase conditions
core.v1.Node: metadata spec status
core.v1.NodeAddress: type address
core.v1.NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
core.v1.NodeCondition: type status lastHeartbeatTime lastTransitionTime reason message
core.v1.NodeConfigSource: 2:configMap
core.v1.NodeConfigStatus: assigned active lastKnownGood error
core.v1.NodeDaemonEndpoints: kubeletEndpoint
core.v1.NodeFeatures: supplementalGroupsPolicy
core.v1.NodeRuntimeHandler: name features
core.v1.NodeRuntimeHandlerFeatures: recursiveReadOnlyMounts userNamespaces
core.v1.NodeSelector: nodeSelectorTerms
core.v1.NodeSelectorRequirement: key operator values
core.v1.NodeSelectorTerm: matchExpressions matchFields
core.v1.NodeSpec: podCIDR externalID providerID unschedulable taints configSource podCIDRs
core.v1.NodeStatus: capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images volumesInUse
    volumesAttached config runtimeHandlers features declaredFeatures
core.v1.NodeSwapStatus: capacity
core.v1.NodeSystemInfo: machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion
    kubeProxyVersion operatingSystem architecture swap
core.v1.ObjectFieldSelector: apiVersion fieldPath
core.v1.ObjectReference: kind namespace name uid apiVersion resourceVersion fieldPath
core.v1.PersistentVolumeClaimSpec: accessModes resources volumeName selector storageClassName volumeMode dataSource
    dataSourceRef volumeAttributesClassName
core.v1.PersistentVolumeClaimTemplate: metadata spec
core.v1.PersistentVolumeClaimVolumeSource: claimName readOnly
core.v1.PhotonPersistentDiskVolumeSource: pdID fsType
core.v1.Pod: metadata spec status
core.v1.PodAffinity: requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
core.v1.PodAffinityTerm: labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys
core.v1.PodAntiAffinity: requiredDuringSchedulingIgnoredDuringExecution
    preferredDuringSchedulingIgnoredDuringExecution
core.v1.PodCondition: type status lastProbeTime lastTransitionTime reason message observedGeneration
core.v1.PodDNSConfig: nameservers searches options
core.v1.PodDNSConfigOption: name value
core.v1.PodIP: ip
core.v1.PodOS: name
core.v1.PodReadinessGate: conditionType
core.v1.PodResourceClaim: name 3:resourceClaimName resourceClaimTemplateName
core.v1.PodResourceClaimStatus: name resourceClaimName
core.v1.PodSchedulingGate: name
core.v1.PodSecurityContext: seLinuxOptions runAsUser runAsNonRoot supplementalGroups fsGroup runAsGroup sysctls
    windowsOptions fsGroupChangePolicy seccompProfile appArmorProfile supplementalGroupsPolicy seLinuxChangePolicy
core.v1.PodSpec: volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy
    nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC securityContext
    imagePullSecrets hostname subdomain affinity schedulerName initContainers automountServiceAccountToken tolerations
    hostAliases priorityClassName priority dnsConfig shareProcessNamespace readinessGates runtimeClassName
    enableServiceLinks preemptionPolicy overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os
    hostUsers schedulingGates resourceClaims resources hostnameOverride 43:schedulingGroup
core.v1.PodStatus: phase conditions message reason hostIP podIP startTime containerStatuses qosClass
    initContainerStatuses nominatedNodeName podIPs ephemeralContainerStatuses resize resourceClaimStatuses hostIPs
    observedGeneration extendedResourceClaimStatus allocatedResources resources
core.v1.PodTemplateSpec: metadata spec
core.v1.PortStatus: port protocol error
core.v1.PortworxVolumeSource: volumeID fsType readOnly
core.v1.PreferredSchedulingTerm: weight preference
core.v1.Probe: +handler initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold
    terminationGracePeriodSeconds
core.v1.ProjectedVolumeSource: sources defaultMode
core.v1.QuobyteVolumeSource: registry volume readOnly user group tenant
core.v1.RBDVolumeSource: monitors image fsType pool user keyring secretRef readOnly
core.v1.ResourceClaim: name request
core.v1.ResourceFieldSelector: containerName resource divisor
core.v1.ResourceHealth: resourceID health
core.v1.ResourceRequirements: limits requests claims
core.v1.ResourceStatus: name resources
core.v1.SELinuxOptions: user role type level
core.v1.ScaleIOVolumeSource: gateway system secretRef sslEnabled protectionDomain storagePool storageMode volumeName
    fsType readOnly
core.v1.SeccompProfile: type localhostProfile
core.v1.SecretEnvSource: +localObjectReference optional
core.v1.SecretKeySelector: +localObjectReference key optional
core.v1.SecretProjection: +localObjectReference items 4:optional
core.v1.SecretVolumeSource: secretName items defaultMode optional
core.v1.SecurityContext: capabilities privileged seLinuxOptions runAsUser runAsNonRoot readOnlyRootFilesystem
    allowPrivilegeEscalation runAsGroup procMount windowsOptions seccompProfile appArmorProfile
core.v1.Service: metadata spec status
core.v1.ServiceAccountTokenProjection: audience expirationSeconds path
core.v1.ServicePort: name protocol port targetPort nodePort appProtocol
core.v1.ServiceSpec: ports selector clusterIP type externalIPs 7:sessionAffinity loadBalancerIP
    loadBalancerSourceRanges externalName externalTrafficPolicy healthCheckNodePort publishNotReadyAddresses
    sessionAffinityConfig 17:ipFamilyPolicy clusterIPs ipFamilies allocateLoadBalancerNodePorts loadBalancerClass
    internalTrafficPolicy trafficDistribution
core.v1.ServiceStatus: loadBalancer conditions
core.v1.SessionAffinityConfig: clientIP
core.v1.SleepAction: seconds
core.v1.StorageOSVolumeSource: volumeName volumeNamespace fsType readOnly secretRef
core.v1.Sysctl: name value
core.v1.TCPSocketAction: port host
core.v1.Taint: key value effect timeAdded
core.v1.Toleration: key operator value effect tolerationSeconds
core.v1.TopologySpreadConstraint: maxSkew topologyKey whenUnsatisfiable labelSelector minDomains nodeAffinityPolicy
    nodeTaintsPolicy matchLabelKeys
core.v1.TypedLocalObjectReference: apiGroup kind name
core.v1.TypedObjectReference: apiGroup kind name namespace
core.v1.Volume: name +volumeSource
core.v1.VolumeDevice: name devicePath
core.v1.VolumeMount: name readOnly mountPath subPath mountPropagation subPathExpr recursiveReadOnly
core.v1.VolumeMountStatus: name mountPath readOnly recursiveReadOnly volumeStatus
core.v1.VolumeProjection: secret downwardAPI configMap serviceAccountToken clusterTrustBundle podCertificate
core.v1.VolumeResourceRequirements: limits requests
core.v1.VsphereVirtualDiskVolumeSource: volumePath fsType storagePolicyName storagePolicyID
core.v1.WeightedPodAffinityTerm: weight podAffinityTerm
core.v1.WindowsSecurityContextOptions: gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess
discovery.v1.Endpoint: addresses conditions hostname targetRef deprecatedTopology nodeName zone hints
discovery.v1.EndpointConditions: ready serving terminating
discovery.v1.EndpointHints: forZones forNodes
discovery.v1.EndpointPort: name protocol port appProtocol
discovery.v1.EndpointSlice: metadata endpoints ports addressType
discovery.v1.ForNode: name
discovery.v1.ForZone: name
meta.v1.Condition: type status observedGeneration lastTransitionTime reason message
meta.v1.DeleteOptions: gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
    ignoreStoreReadErrorWithClusterBreakingPotential
meta.v1.FieldSelectorRequirement: key operator values
meta.v1.LabelSelector: matchLabels matchExpressions
meta.v1.LabelSelectorRequirement: key operator values
meta.v1.ManagedFieldsEntry: manager operation apiVersion time 6:fieldsType fieldsV1 subresource
meta.v1.ObjectMeta: name generateName namespace selfLink uid resourceVersion generation creationTimestamp
    deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers 17:managedFields
meta.v1.OwnerReference: kind 3:name uid apiVersion controller blockOwnerDeletion
meta.v1.Preconditions: uid resourceVersion
networking.v1.IPAddress: metadata spec
networking.v1.IPAddressSpec: parentRef
networking.v1.ParentReference: group resource namespace name
networking.v1.ServiceCIDR: metadata spec status
networking.v1.ServiceCIDRSpec: cidrs
networking.v1.ServiceCIDRStatus: conditions
policy.v1.Eviction: metadata deleteOptions
+ephemeralContainerCommon: name image command args workingDir ports env resources volumeMounts livenessProbe
    readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom
    terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy restartPolicyRules
+volumeSource: hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs
    persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume
    quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected storageos csi ephemeral image
+handler: exec httpGet tcpSocket grpc
+localObjectReference: name
"""

# Numbers and booleans whose zero Go leaves out of JSON, while protobuf always carries them. All others are pointers
# in Go: if they are on the wire, somebody set them, zero or not.
ZERO_IS_ABSENT = frozenset(
    [
        "availableReplicas",
        "chapAuthDiscovery",
        "chapAuthSession",
        "count",
        "failureThreshold",
        "fullyLabeledReplicas",
        "generation",
        "healthCheckNodePort",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPort",
        "initialDelaySeconds",
        "minReadySeconds",
        "nodePort",
        "observedGeneration",
        "partition",
        "paused",
        "periodSeconds",
        "publishNotReadyAddresses",
        "readOnly",
        "readyReplicas",
        "signal",
        "sizeBytes",
        "sslEnabled",
        "stdin",
        "stdinOnce",
        "successThreshold",
        "timeoutSeconds",
        "tty",
        "unavailableReplicas",
        "unschedulable",
        "updatedReplicas",
    ]
)
