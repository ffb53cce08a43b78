"""What a machine says of itself: interfaces, routes, settings."""

from clusterip.rulesets.host.interfaces import Interface, InterfaceAddress, Interfaces, read_interfaces
from clusterip.rulesets.host.routing import (
    NextHop,
    PolicyRule,
    PolicyRules,
    Route,
    Routes,
    read_policy,
    read_routes,
)
from clusterip.rulesets.host.settings import HairpinMode, Settings, hairpin_modes, read_settings, setting_name

__all__ = [
    "HairpinMode",
    "Interface",
    "InterfaceAddress",
    "Interfaces",
    "NextHop",
    "PolicyRule",
    "PolicyRules",
    "Route",
    "Routes",
    "Settings",
    "hairpin_modes",
    "read_interfaces",
    "read_policy",
    "read_routes",
    "read_settings",
    "setting_name",
]
