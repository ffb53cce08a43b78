"""What the pods of a node share."""

from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from clusterip.client.api import Api
from clusterip.kernel.processes import Launcher
from clusterip.model.objects import Service
from clusterip.node.events import Recorder
from clusterip.node.sandbox import Sandboxes
from clusterip.node.settings import Settings


@dataclass(frozen=True, slots=True)
class Tools:
    settings: Settings
    api: Api
    launcher: Launcher
    sandboxes: Sandboxes
    recorder: Recorder
    probing: aiohttp.ClientSession
    services: Callable[[], tuple[Service, ...]]  # of all namespaces, now
