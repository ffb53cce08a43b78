"""iptables-save as values: `parse` and `text` are inverses; `restore` is what iptables-restore would make of a text."""

from clusterip.rulesets.iptables.parse import BadRuleset, parse, parse_rule
from clusterip.rulesets.iptables.restore import RestoreRefused, empty, restore
from clusterip.rulesets.iptables.targets import EXTENSIONS
from clusterip.rulesets.iptables.text import line_text, match_text, rule_text, ruleset_text, table_text
from clusterip.rulesets.iptables.values import Chain, Counters, Match, Rule, Ruleset, Table, Target

__all__ = [
    "EXTENSIONS",
    "BadRuleset",
    "Chain",
    "Counters",
    "Match",
    "RestoreRefused",
    "Rule",
    "Ruleset",
    "Table",
    "Target",
    "empty",
    "line_text",
    "match_text",
    "parse",
    "parse_rule",
    "restore",
    "rule_text",
    "ruleset_text",
    "table_text",
]
