"""Which JSON Web Tokens are valid, and what attackers write into them."""

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from mcp_server.sample_server import running
from mcp_server.tokens.issuer import (
    AUDIENCE,
    CLAIMS,
    EC_KEY,
    FUTURE,
    ISSUER,
    KEYS,
    OKP_KEY,
    OTHER_RSA_KEY,
    PAST,
    RSA_KEY,
    answering,
    make_token,
    public,
)
from toolmason._http.caller import make_identity
from toolmason.errors import ConfigError, RemoteError
from toolmason.mcp import Jwt
from toolmason.mcp_server.tokens.jwt_check import MAX_TOKEN_CHARS
from toolmason.mcp_server.tokens.key_set import (
    KEY_FRESH_SECONDS,
    KEY_REFRESH_SECONDS,
    KEY_STALE_SECONDS,
    MAX_ANSWER_BYTES,
    MAX_KEYS,
)


def check(jwks: Any = KEYS, **options: Any) -> Jwt:
    return Jwt(**{"issuer": ISSUER, "audience": AUDIENCE, "jwks": jwks, **options})


def encode(part: Any) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def forge(header: Any, signature: bytes = b"") -> str:
    return f"{encode(header)}.{encode(CLAIMS)}.{encode(signature)}"


def sign_with_public_key(algorithm: str) -> str:
    """Return a token whose HMAC has the public RSA key as its secret."""
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    signer = hmac.HMAC(RSA_KEY.public_key().public_bytes(*form), hashes.SHA256())
    header = {"alg": algorithm, "kid": "rsa"}
    signer.update(f"{encode(header)}.{encode(CLAIMS)}".encode())
    return forge(header, signer.finalize())


@pytest.mark.parametrize(
    "token",
    [
        make_token(),
        make_token(algorithm="PS512"),
        make_token(EC_KEY, "ES256", "ec"),
        make_token(OKP_KEY, "EdDSA", "okp"),
        make_token(EC_KEY, "ES256", None),
        make_token(aud=["https://other.example", AUDIENCE]),
    ],
    ids=["RS256", "PS512", "ES256", "EdDSA", "only key of its type", "two audiences"],
)
async def test_a_valid_token_is_the_user_with_the_scopes(token: str):
    assert await check()(token) == {"user": "ada", "scopes": ("orders:read", "orders:write")}


@pytest.mark.parametrize(
    "token",
    [
        forge({"alg": "none", "kid": "rsa"}),
        forge({"alg": "None", "kid": "rsa"}),
        forge({"kid": "rsa"}),
        sign_with_public_key("HS256"),
        sign_with_public_key("RS256"),
        make_token(OTHER_RSA_KEY),
        make_token(headers={"alg": "RS256", "crit": ["exp"]}),
        make_token(EC_KEY, "ES256", "rsa"),
        make_token(iss="https://evil.example/"),
        make_token(iss=ISSUER.rstrip("/")),
        make_token(iss=None),
        make_token(aud="https://other.example"),
        make_token(aud=AUDIENCE + "/"),
        make_token(aud=None),
        make_token(exp=PAST),
        make_token(exp=None),
        make_token(exp="soon"),
        make_token(exp=1e400),
        make_token(nbf=FUTURE),
        make_token(iat=FUTURE),
        make_token(sub=None),
        make_token(sub=""),
        make_token(sub=7),
        make_token(kid="../../etc/passwd"),
        make_token(kid="rsa\0"),
        make_token(kid="' OR '1'='1"),
        make_token(kid="https://evil.example/keys"),
        make_token(kid=""),
        forge({"alg": "RS256", "kid": ["rsa"]}),
        forge({"alg": ["RS256"], "kid": "rsa"}),
        forge([]),
        forge(b"[" * 9000),
        make_token(padding="x" * MAX_TOKEN_CHARS),
        make_token() + "A",
        "",
        "a.b.c",
        "\ud800.\ud800.\ud800",
        "é" * 100,
    ],
    ids=[
        *("none", "None", "no algorithm", "HS256 with the public key", "HMAC as RS256", "another key", "crit"),
        *("key of another type", "issuer", "issuer without slash", "no issuer", "audience", "longer audience"),
        *("no audience", "expired", "no expiry", "expiry of text", "infinite expiry", "not yet valid"),
        *("issued in the future", "no user", "empty user", "user of a number", "kid as path", "kid with a null"),
        *("kid as query", "kid as address", "empty kid", "kid as list", "algorithm as list", "header as list"),
        *("deep header", "oversized", "longer signature", "empty", "no JSON", "surrogates", "not ASCII"),
    ],
)
async def test_a_forged_token_is_rejected(token: str):
    assert await check()(token) is None


@pytest.mark.parametrize("field", ["jku", "x5u", "jwk"])
async def test_keys_that_a_token_brings_are_ignored(field: str):
    with answering({"keys": [public(OTHER_RSA_KEY, "rsa")]}) as evil:
        own = public(OTHER_RSA_KEY, "rsa") if field == "jwk" else evil.url
        rejected = await check()(make_token(OTHER_RSA_KEY, headers={field: own}))
        accepted = await check()(make_token(headers={field: own}))

    assert rejected is None
    assert accepted is not None
    assert evil.requests == []


@pytest.mark.parametrize(
    ("key", "algorithm", "entry"),
    [
        (RSA_KEY, "RS256", public(RSA_KEY, "k", alg="RS512")),
        (RSA_KEY, "RS256", public(RSA_KEY, "k", n="!")),
        (ec.generate_private_key(ec.SECP384R1()), "ES384", public(EC_KEY, "k")),
    ],
    ids=["of another algorithm", "broken", "of another curve"],
)
async def test_a_key_that_does_not_fit_verifies_nothing(key: Any, algorithm: str, entry: dict[str, Any]):
    assert await check({"keys": [entry]})(make_token(key, algorithm, "k")) is None


@pytest.mark.filterwarnings("ignore:The RSA key")
async def test_an_rsa_key_below_2048_bits_verifies_nothing():
    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - the key that must be refused

    assert await check({"keys": [public(weak, "k")]})(make_token(weak, "RS256", "k")) is None


async def test_without_a_kid_two_keys_of_one_type_are_ambiguous():
    keys = {"keys": [public(RSA_KEY, "a"), public(OTHER_RSA_KEY, "b")]}

    assert await check(keys)(make_token(kid=None)) is None


async def test_an_algorithm_that_is_not_listed_is_rejected():
    assert await check(algorithms=["ES256"])(make_token()) is None


@pytest.mark.parametrize(("late", "valid"), [(29, True), (31, False)])
async def test_the_leeway_allows_for_clocks_that_differ(monkeypatch: pytest.MonkeyPatch, late: int, valid: Any):
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.fromtimestamp(FUTURE + late, tz)

    monkeypatch.setattr("jwt.api_jwt.datetime", Later)

    assert (await check(leeway=30)(make_token()) is not None) is valid


async def test_other_claims_are_the_user_the_scopes_and_the_context():
    token = make_token(oid="7", tid="tea", scp=["a", "b", 3], roles=["admin"])

    found = await check(user="oid", claims=["tid", "absent"], scope_claims=["scp", "roles"])(token)

    assert found == {"user": "7", "tid": "tea", "scopes": ("a", "admin", "b")}


async def test_a_token_with_more_scopes_is_of_the_same_owner():
    narrow, wide = make_token(scope="a"), make_token(scope="a b")

    owners = {make_identity(await check()(token), token).owner for token in (narrow, wide)}

    assert len(owners) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"issuer": ""}, "neither may be empty"),
        ({"audience": []}, "neither may be empty"),
        ({"audience": [""]}, "neither may be empty"),
        ({"algorithms": ["none"]}, "must be a list of RS256"),
        ({"algorithms": ["HS256", "RS256"]}, "must be a list of RS256"),
        ({"algorithms": "RS256"}, "must be a list of RS256"),
        ({"algorithms": []}, "must be a list of RS256"),
        ({"claims": ["user"]}, "must not name user"),
        ({"claims": "tid"}, "must be lists"),
        ({"leeway": -1}, "from 0 to 300"),
        ({"leeway": 1e9}, "from 0 to 300"),
        ({"jwks": {}}, "'keys' must be a list"),
        ({"jwks": {"keys": [{"kty": "RSA"}] * (MAX_KEYS + 1)}}, "at most 100 keys"),
        ({"jwks": {"keys": [{"kty": "oct", "k": "AAAA"}]}}, "no public key"),
        (
            {"jwks": {"keys": [public(RSA_KEY, "a", use="enc"), public(RSA_KEY, "b", key_ops=["wrapKey"]), 3]}},
            "no public",
        ),
        ({"jwks": "http://login.example.com/keys"}, "must be an https address"),
        ({"jwks": "file:///etc/keys"}, "must be an https address"),
        ({"jwks": "https://user:secret@login.example.com"}, "must be an https address"),
        ({"jwks": "missing.json"}, "cannot be read"),
        ({"jwks": 7}, "wrong type"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], text: str):
    with pytest.raises(ConfigError, match=text):
        check(**options)


async def test_a_private_key_in_the_data_is_used_as_a_public_one():
    entry = public(RSA_KEY, "rsa", d="AQAB")

    assert await check({"keys": [entry]})(make_token()) is not None


# --- files and addresses --------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("toolmason.mcp_server.tokens.key_set.time.monotonic", lambda: now[0])
    return now


async def test_a_file_is_read_again_if_a_key_is_unknown(tmp_path: Path, clock: list[float]):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [public(OTHER_RSA_KEY, "old")]}))
    jwt = check(path)
    path.write_text(json.dumps(KEYS))

    found = await jwt(make_token())

    assert found is not None


@pytest.mark.parametrize(
    ("content", "text"),
    [("{", "is not JSON"), (" " * (MAX_ANSWER_BYTES + 1), "is larger than"), ("[]", "must be a list")],
)
def test_a_file_without_keys_is_refused(tmp_path: Path, content: str, text: str):
    path = tmp_path / "keys.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=text):
        check(str(path))


async def test_an_address_is_read_once_per_interval_however_many_keys_are_unknown(clock: list[float]):
    with answering(KEYS) as issuer:
        jwt = check(issuer.url)
        known = [await jwt(make_token()) for _ in range(3)]
        unknown = [await jwt(make_token(kid=f"k{number}")) for number in range(3)]
        reads = len(issuer.requests)
        issuer.body = {"keys": [public(RSA_KEY, "new")]}
        clock[0] += KEY_REFRESH_SECONDS
        rotated = await jwt(make_token(kid="new"))
        withdrawn = await jwt(make_token())

    assert None not in known
    assert unknown == [None] * 3
    assert reads == 1
    assert rotated is not None
    assert withdrawn is None
    assert [path for path, _, _ in issuer.requests] == ["/keys?p=one"] * 2


async def test_a_withdrawn_key_is_rejected_when_the_keys_are_read_again(clock: list[float]):
    with answering(KEYS) as issuer:
        jwt = check(issuer.url)
        before = await jwt(make_token())
        issuer.body = {"keys": [public(EC_KEY, "ec")]}
        clock[0] += KEY_FRESH_SECONDS
        after = await jwt(make_token())

    assert before is not None
    assert after is None


async def test_keys_are_used_for_a_day_if_the_address_fails(clock: list[float]):
    with answering(KEYS) as issuer:
        jwt = check(issuer.url)
        await jwt(make_token())
        issuer.status = 500
        clock[0] += KEY_STALE_SECONDS
        stale = await jwt(make_token())
        clock[0] += KEY_REFRESH_SECONDS
        with pytest.raises(RemoteError, match="its keys are not available"):
            await jwt(make_token())

    assert stale is not None


@pytest.mark.parametrize(
    ("body", "status", "location"),
    [
        (KEYS, 500, ""),
        (b"<html>", 200, ""),
        (b" " * (MAX_ANSWER_BYTES + 1), 200, ""),
        ({"keys": []}, 200, ""),
        (KEYS, 302, "http://localhost:1/keys"),
    ],
    ids=["status", "no JSON", "too large", "no keys", "redirect to another server"],
)
async def test_an_address_without_keys_is_an_error_that_passes(body: Any, status: int, location: str):
    with answering(body, status) as issuer:
        issuer.location = location
        jwt = check(issuer.url)
        for _ in range(2):
            with pytest.raises(RemoteError, match="its keys are not available"):
                await jwt(make_token())

    assert len(issuer.requests) == 1


# --- in a server ----------------------------------------------------------------------------------


def test_a_server_accepts_a_token_and_knows_its_user():
    call = {"name": "who", "arguments": {}}
    with running(auth=check()) as server:
        accepted = server.ask("tools/call", call, headers={"authorization": f"Bearer {make_token()}"})
        rejected = server.ask("tools/call", call, headers={"authorization": f"Bearer {make_token(exp=PAST)}"})

    assert accepted.json["result"]["content"][0]["text"] == "ada"
    assert rejected.status == 401
    assert 'error="invalid_token"' in rejected.headers["www-authenticate"]


def test_a_server_answers_503_while_the_keys_cannot_be_read():
    with answering({}, 500) as issuer, running(auth=check(issuer.url)) as server:
        answer = server.ask("tools/list", {}, headers={"authorization": f"Bearer {make_token()}"})

    assert answer.status == 503
    assert "could not be checked" in answer.json["error"]["message"]


def test_a_check_shows_no_key():
    assert repr(check()) == f"Jwt(issuer={ISSUER!r}, audience=({AUDIENCE!r},))"
