"""nftables as values: what `nft list ruleset` and `nft -j list ruleset` say."""
