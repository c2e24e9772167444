"""The next step in the rotation of certificates of our own.

A new CA is written to the Secret, then to the registration beside the old one, and
read back; after a delay, in which every API server hears of it, it signs the leaf;
the old one is dropped when no replica can serve a leaf of it any more. Decisions are
made from the Secret alone, so that it does not matter which replica makes them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from service.certificates.x509 import (
    Authority,
    Leaf,
    issue_leaf,
    make_authority,
    read_authority,
)


@dataclass(frozen=True, slots=True)
class RotationOptions:
    """Names and times, the latter in seconds.

    Attributes
    ----------
    names : frozenset of str
        DNS names and IP addresses of the leaf.
    leaf_lifetime_seconds, leaf_rotation_seconds : float
        How long a leaf is valid, and its age when it is replaced.
    ca_lifetime_seconds, ca_rotation_seconds : float
        The same of the CA.
    switch_delay_seconds : float
        From a CA's being read back to its first leaf.
    drop_delay_seconds : float
        How long a CA is trusted after its last leaf.
    """

    names: frozenset[str]
    leaf_lifetime_seconds: float
    leaf_rotation_seconds: float
    ca_lifetime_seconds: float
    ca_rotation_seconds: float
    switch_delay_seconds: float
    drop_delay_seconds: float


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of the Secret.

    Attributes
    ----------
    authorities : tuple of Authority
        The oldest first; all of them are to be trusted.
    leaf : Leaf or None
        What every replica serves; None until an authority may sign one.
    """

    authorities: tuple[Authority, ...]
    leaf: Leaf | None = None

    @property
    def bundle(self) -> tuple[bytes, ...]:
        """The certificates that are to be trusted."""
        return tuple(authority.certificate for authority in self.authorities)

    def is_signing(self, authority: Authority) -> bool:
        """Whether the leaf is of this authority."""
        return self.leaf is not None and self.leaf.issuer == authority.certificate


@dataclass(frozen=True, slots=True)
class Published:
    """Certificates that API servers trust: one bundle for each registered webhook.

    It is older than the contents of the Secret that it is compared with.
    """

    bundles: tuple[tuple[bytes, ...], ...]

    def trusts(self, certificate: bytes) -> bool:
        """Whether every webhook has it."""
        return all(certificate in bundle for bundle in self.bundles)

    def is_like(self, bundle: Iterable[bytes]) -> bool:
        """Whether every webhook has this bundle, in any order."""
        wanted = set(bundle)
        return all(set(found) == wanted for found in self.bundles)


@dataclass(frozen=True, slots=True)
class Write:
    """The Secret is to hold this."""

    contents: Contents


@dataclass(frozen=True, slots=True)
class Publish:
    """The registration is to have this bundle."""

    bundle: tuple[bytes, ...]


Step: TypeAlias = Write | Publish


def may_serve(leaf: Leaf, published: Published | None) -> bool:
    """Whether the API servers that call us trust a leaf; unregistered, none calls."""
    return published is None or published.trusts(leaf.issuer)


def trusted_until_seconds(
    contents: Contents, leaf: Leaf, read_seconds: float, options: RotationOptions
) -> float | None:
    """Return until when a leaf's CA is surely in the registration.

    None where the Secret does not list the CA: it says nothing. One that may sign can
    have been retired at once after the Secret was read. A switch delay is left over,
    for clocks that differ and for a write that was under way meanwhile.
    """
    for authority in contents.authorities:
        if authority.certificate == leaf.issuer:
            retired = authority.retired_seconds
            since = read_seconds if retired is None else min(retired, read_seconds)
            return since + options.drop_delay_seconds - options.switch_delay_seconds
    return None


def next_step(
    contents: Contents | None,
    published: Published | None,
    now_seconds: float,
    options: RotationOptions,
) -> Step | None:
    """Return what is to be done next, None if nothing is.

    Parameters
    ----------
    contents : Contents or None
        None where the Secret is missing or cannot be read.
    published : Published or None
        None where the webhook is not registered. It must have been read before the
        Secret: then whatever it holds that the Secret does not is there no more.
    now_seconds : float
        Since 1970.
    """
    wanted = contents or Contents(())
    wanted = _adopt(wanted, published, now_seconds)
    wanted = _note_published(wanted, published, now_seconds)
    wanted = _drop(wanted, now_seconds, options)
    wanted = _renew_leaf(wanted, published, now_seconds, options)
    wanted = _renew_authority(wanted, now_seconds, options)
    if contents is None or wanted != contents:
        return Write(wanted)
    if published is not None and not published.is_like(contents.bundle):
        return Publish(contents.bundle)
    return None


def _adopt(
    contents: Contents, published: Published | None, now_seconds: float
) -> Contents:
    """Trust what is published while there is no leaf of ours: others may serve it.

    So it is when the Secret was lost, and where certificates came from elsewhere.
    """
    if contents.leaf is not None or published is None:
        return contents
    known = dict.fromkeys(pem for bundle in published.bundles for pem in bundle)
    foreign = tuple(
        read_authority(pem).retired(now_seconds)
        for pem in known
        if pem not in contents.bundle
    )
    return replace(contents, authorities=(*foreign, *contents.authorities))


def _note_published(
    contents: Contents, published: Published | None, now_seconds: float
) -> Contents:
    """Note since when each CA that has not signed yet can be read back."""
    if published is None:
        return contents

    def noted(authority: Authority) -> Authority:
        if not authority.key or contents.is_signing(authority):
            return authority
        if not published.trusts(authority.certificate):
            return replace(authority, published_seconds=None)
        if authority.published_seconds is None:
            return replace(authority, published_seconds=now_seconds)
        return authority

    return replace(contents, authorities=tuple(map(noted, contents.authorities)))


def _drop(contents: Contents, now_seconds: float, options: RotationOptions) -> Contents:
    """Leave out what no replica serves a leaf of, and what has expired.

    While there is no leaf nothing is left out that is valid: what is trusted alone
    signs without delay, and API servers may not have heard of it yet.
    """

    def is_over(authority: Authority) -> bool:
        retired = authority.retired_seconds
        is_forgotten = (
            contents.leaf is not None
            and retired is not None
            and retired + options.drop_delay_seconds <= now_seconds
        )
        return is_forgotten or authority.ends_seconds <= now_seconds

    return replace(
        contents,
        authorities=tuple(
            authority
            for authority in contents.authorities
            if contents.is_signing(authority) or not is_over(authority)
        ),
    )


def _renew_leaf(
    contents: Contents,
    published: Published | None,
    now_seconds: float,
    options: RotationOptions,
) -> Contents:
    """Return the contents with a new leaf if one is due, and its elders retired."""
    signer = _find_signer(contents, published, now_seconds, options)
    if signer is None or not _is_leaf_due(contents.leaf, signer, now_seconds, options):
        return contents
    names = options.names
    if contents.leaf is not None and not names <= contents.leaf.names:
        # Not only ours: a replica with other settings would take them out again.
        names |= contents.leaf.names
    leaf = issue_leaf(signer, names, now_seconds, options.leaf_lifetime_seconds)
    index = contents.authorities.index(signer)
    elders = (elder.retired(now_seconds) for elder in contents.authorities[:index])
    return Contents((*elders, *contents.authorities[index:]), leaf)


def _find_signer(
    contents: Contents,
    published: Published | None,
    now_seconds: float,
    options: RotationOptions,
) -> Authority | None:
    """Return the newest CA that may sign, None if none may yet."""
    alive = [a for a in contents.authorities if a.ends_seconds > now_seconds]

    def is_ripe(authority: Authority) -> bool:
        if contents.is_signing(authority):
            return True
        if published is not None and not published.trusts(authority.certificate):
            return False
        if alive == [authority]:  # nothing else is trusted that one could wait for
            return True
        since = authority.published_seconds
        return since is not None and since + options.switch_delay_seconds <= now_seconds

    ripe = [authority for authority in alive if authority.key and is_ripe(authority)]
    return ripe[-1] if ripe else None


def _is_leaf_due(
    leaf: Leaf | None, signer: Authority, now_seconds: float, options: RotationOptions
) -> bool:
    """Whether it is time for a new leaf."""
    return (
        leaf is None
        or leaf.issuer != signer.certificate
        or not options.names <= leaf.names
        or leaf.made_seconds + options.leaf_rotation_seconds <= now_seconds
        or leaf.ends_seconds <= now_seconds
    )


def _renew_authority(
    contents: Contents, now_seconds: float, options: RotationOptions
) -> Contents:
    """Return the contents with a new CA if one is due; one at a time."""
    able = [
        authority
        for authority in contents.authorities
        if authority.key and authority.ends_seconds > now_seconds
    ]
    if able:
        newest = able[-1]
        age_seconds = now_seconds - newest.made_seconds
        if not contents.is_signing(newest) or age_seconds < options.ca_rotation_seconds:
            return contents
    fresh = make_authority(now_seconds, options.ca_lifetime_seconds)
    return replace(contents, authorities=(*contents.authorities, fresh))
