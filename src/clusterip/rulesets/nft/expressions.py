"""Expressions of a rule: what is computed from the packet, and what it is compared with."""

from typing import Literal, NoReturn, cast

from clusterip.rulesets.nft import literals
from clusterip.rulesets.nft import values as v
from clusterip.rulesets.nft.literals import FIELDS, literal


class Unreadable(Exception):
    """These words make no rule; the caller knows the line."""


class Words:
    """The words of a rule, taken one after another."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """ "" behind the end."""
        at = self.at + ahead
        return self.words[at] if at < len(self.words) else ""

    def take(self) -> str:
        if self.at >= len(self.words):
            raise Unreadable("the rule ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def taken(self, word: str) -> bool:
        """Takes it if it comes next."""
        if self.peek() != word:
            return False
        self.at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.taken(word):
            raise Unreadable(f"{word} is missing before {self.peek() or 'the end'}")

    def number(self) -> int:
        word = self.take()
        found = literals.number(word)
        if found is None:
            raise Unreadable(f"{word} is no number")
        return found


Operator = Literal["&", "|", "^", "<<", ">>"]
_OPERATORS: dict[str, Operator] = {"&": "&", "|": "|", "^": "^", "<<": "<<", ">>": ">>"}
_OPERATORS |= {"and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"}  # as iptables-nft's rules are printed
_BINDS: dict[Operator, int] = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4}
_DEEPEST = 40  # parentheses in parentheses; nobody writes 5


def expression(words: Words, *, value: bool = False, depth: int = 0) -> v.Expression:
    """Parts joined by " . ", then perhaps looked up in a map. `value`: it stands where a value is awaited."""
    parts = [_binary(words, 1, value, depth)]
    while words.taken("."):
        parts.append(_binary(words, 1, value, depth))
    found = parts[0] if len(parts) == 1 else v.Concat(tuple(parts))
    if words.taken("map"):
        return v.Lookup(found, set_or_elements(words, depth))
    return found


def _binary(words: Words, binding: int, value: bool, depth: int) -> v.Expression:
    left = _primary(words, value, depth)
    while (operator := _OPERATORS.get(words.peek())) and _BINDS[operator] >= binding:
        words.take()
        right = _binary(words, _BINDS[operator] + 1, value=True, depth=depth)
        left = joined(left, operator, right)
    return left


def joined(left: v.Expression, operator: Operator, right: v.Expression) -> v.Expression:
    """Words joined by "|" are a list of flags."""
    if operator == "|" and isinstance(left, v.Word | v.Flags) and isinstance(right, v.Word):
        return v.Flags((*(left.parts if isinstance(left, v.Flags) else (left,)), right))
    return v.Binary(operator, left, right)


def _primary(words: Words, value: bool, depth: int) -> v.Expression:
    if depth > _DEEPEST:
        raise Unreadable("it is nested too deeply")
    word = words.take()
    match word:
        case "(":
            found = expression(words, value=value, depth=depth + 1)
            words.expect(")")
            return found
        case "{":
            words.at -= 1
            return set_or_elements(words, depth)
        case "meta" if words.peek():
            return v.Meta(words.take())
        case "ct" if words.peek():
            return _ct(words)
        case "fib" if words.peek() and words.peek() != ".":
            return _fib(words)
        case "numgen":
            return _numgen(words)
        case "jhash" | "symhash":
            return _hash(words, word, depth)
        case "rt" | "socket" | "osf" | "ipsec" | "exthdr" if not value or words.peek() in ("mtu", "nexthop", "classid"):
            return _other(words, word)
    if words.peek() in FIELDS.get(word, ()):
        return v.Payload(word, words.take())
    if word in FIELDS and words.peek() in ("option", "exthdr"):
        return _other(words, word)
    if word in literals.BARE_META:
        return v.Meta(word)
    if word[:1] == "@":
        return v.OtherExpression(word) if "," in word else v.SetName(word[1:])
    if word in ("}", ")", ",", ":", "."):
        raise Unreadable(f"{word} stands where a value was awaited")
    if word[:1] == '"' and words.peek() == "-" and words.peek(1)[:1] == '"':  # "08:00"-"17:00"
        words.take()
        return v.Range(v.Quoted(word[1:-1]), v.Quoted(words.take()[1:-1]))
    return literal(word)


def _ct(words: Words) -> v.Ct:
    direction = words.take() if words.peek() in literals.CT_DIRECTIONS and words.peek(1) else ""
    key = words.take()
    if key in literals.CT_FAMILIES and words.peek() in ("saddr", "daddr"):
        key = f"{key} {words.take()}"
    return v.Ct(key, cast(Literal["original", "reply", ""], direction))


def _fib(words: Words) -> v.Fib:
    by = [words.take()]
    while words.taken("."):
        by.append(words.take())
    return v.Fib(tuple(by), words.take())


def _numgen(words: Words) -> v.Numgen:
    mode = words.take()
    if mode not in ("random", "inc"):
        _refuse("numgen", mode)
    words.expect("mod")
    modulus = words.number()
    return v.Numgen(cast(Literal["random", "inc"], mode), modulus, words.number() if words.taken("offset") else 0)


def _hash(words: Words, kind: str, depth: int) -> v.JHash:
    key = expression(words, depth=depth + 1) if kind == "jhash" else None
    words.expect("mod")
    modulus = words.number()
    seed = words.number() if words.taken("seed") else None
    return v.JHash(key, modulus, seed, words.number() if words.taken("offset") else 0)


def _other(words: Words, first: str) -> v.OtherExpression:
    """ "rt mtu", "rt ip nexthop", "tcp option maxseg size", "socket transparent"."""
    taken = [first, words.take()]
    if taken[1] in ("option", "exthdr"):
        taken.append(words.take())
        if words.peek() and words.peek() not in _AFTER_OPTION:
            taken.append(words.take())
    elif taken[1] in ("ip", "ip6", "in", "out"):
        taken.append(words.take())
    elif words.peek() in ("level",):
        taken += (words.take(), words.take())
    return v.OtherExpression(" ".join(taken))


_AFTER_OPTION = frozenset(("set", "exists", "missing", "==", "!=", "<", ">", "<=", ">="))


def set_or_elements(words: Words, depth: int = 0) -> v.SetName | v.Elements:
    word = words.take()
    if word[:1] == "@" and len(word) > 1:
        return v.SetName(word[1:])
    if word != "{":
        raise Unreadable(f"{word} is no set")
    found: list[v.Element] = []
    while not words.taken("}"):
        found += element(words, depth + 1)
        if not words.taken(",") and words.peek() != "}":
            raise Unreadable(f"{words.peek() or 'the end'} stands within a set")
    return v.Elements(tuple(found))


def element(words: Words, depth: int = 0) -> list[v.Element]:
    """One element; several where the text joins values by commas without blanks."""
    key = expression(words, value=True, depth=depth)
    options = _Options()
    options.take(words)
    value: v.Expression | v.Verdict | None = None
    if words.taken(":"):
        value = verdict(words) or expression(words, value=True, depth=depth)
        options.take(words)
    keys = key.parts if isinstance(key, v.Flags) and value is None else (key,)
    return [
        v.Element(k, value, options.comment, options.timeout, options.expires, tuple(options.counters)) for k in keys
    ]


class _Options:
    """What an element says besides its key and value."""

    def __init__(self) -> None:
        self.comment = self.timeout = self.expires = ""
        self.counters: list[v.Statement] = []

    def take(self, words: Words) -> None:
        while True:
            match words.peek():
                case "comment":
                    words.take()
                    self.comment = words.take().strip('"')
                case "timeout":
                    words.take()
                    self.timeout = words.take()
                case "expires":
                    words.take()
                    self.expires = words.take()
                case "counter":
                    words.take()
                    self.counters.append(counter(words))
                case "limit":
                    words.take()
                    self.counters.append(limit(words))
                case _:
                    return


def verdict(words: Words) -> v.Verdict | None:
    """None, and nothing taken: it is none."""
    match words.peek():
        case "accept":
            found: v.Verdict = v.Accept()
        case "drop":
            found = v.Drop()
        case "return":
            found = v.Return()
        case "continue":
            found = v.Continue()
        case "jump" | "goto" as how:
            words.take()
            chain = words.take()
            return v.Jump(chain) if how == "jump" else v.Goto(chain)
        case _:
            return None
    words.take()
    return found


def counter(words: Words) -> v.Counter:
    """What follows "counter"."""
    if words.taken("packets"):
        packets = words.number()
        words.expect("bytes")
        return v.Counter(packets, words.number())
    if words.taken("name"):
        return v.Counter(name=words.take().strip('"'))
    return v.Counter(name=words.take().strip('"')) if words.peek()[:1] == '"' else v.Counter()


def limit(words: Words) -> v.Statement:
    """What follows "limit"."""
    if words.taken("name"):
        return v.OtherStatement(f"limit name {words.take()}")
    words.expect("rate")
    over = words.taken("over")
    rate = words.take()
    if "/" not in rate:
        rate = f"{rate} {words.take()}"
    burst = f"{words.take()} {words.take()}" if words.taken("burst") else ""
    return v.Limit(rate, over, burst)


def _refuse(what: str, word: str) -> NoReturn:
    raise Unreadable(f"{what} {word} is not known")
