"""nftables as values: what `nft list ruleset` and `nft -j list ruleset` say. `text` prints what `nft -f` loads."""

from clusterip.rulesets.nft.jsontext import read as read_json
from clusterip.rulesets.nft.parse import read
from clusterip.rulesets.nft.rules import rule as parse_rule
from clusterip.rulesets.nft.text import expression_text, rule_text, ruleset_text, statement_text, table_text
from clusterip.rulesets.nft.values import Chain, Element, Hook, Rule, Ruleset, Set, Table, TableName

__all__ = [
    "Chain",
    "Element",
    "Hook",
    "Rule",
    "Ruleset",
    "Set",
    "Table",
    "TableName",
    "expression_text",
    "parse_rule",
    "read",
    "read_json",
    "rule_text",
    "ruleset_text",
    "statement_text",
    "table_text",
]
