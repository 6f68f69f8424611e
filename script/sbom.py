#!/usr/bin/env python3
"""Writes what a wheel holds besides ringest, as a software bill of materials: CycloneDX 1.6, JSON.

usage: script/sbom.py VERSION SOURCES_OF_DEBIAN > FILE. The pins of script/subprojects and the .dsc files of what
script/wheel took from Debian say versions and hashes, so that nothing is told twice."""

import re
import sys
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

LICENCES = {
    "expat": "MIT",
    "hwloc": "BSD-3-Clause",
    "libisal": "BSD-3-Clause",
    "liburing": "MIT",
    "boringssl": "Apache-2.0",
    "yyjson": "MIT",
}
# The source distribution of PyPI that each comes in.
CARRIERS = {"grpcio": "boringssl", "yyjson": "yyjson"}


def component(name: str, version: str, purl: PackageURL, sha256: str | None = None) -> Component:
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
        licenses=[DisjunctiveLicense(id=LICENCES.get(name, "Apache-2.0"))],
        purl=purl,
    )


def found(pattern: str, file: Path) -> str:
    match = re.search(pattern, file.read_text(), re.MULTILINE)
    if match is None:
        sys.exit(f"sbom.py: {file} has no {pattern}")
    return match[1]


def of_debian(description: Path) -> Component:
    """A library from Debian's sources; the hash is that of the upstream archive."""
    name = found(r"^Source: (.+)$", description)
    version = found(r"^Version: (.+)$", description)
    archive = found(r"^ ([0-9a-f]{64}) \d+ \S+\.orig\.tar\.\w+$", description)
    return component(name, version, PackageURL("deb", "debian", name, version, {"arch": "source"}), archive)


def of_pypi(pin: re.Match[str]) -> Component:
    carrier, version, sha256 = pin.groups()
    return component(CARRIERS[carrier], f"of {carrier} {version}", PackageURL("pypi", None, carrier, version), sha256)


def main() -> None:
    version, sources = sys.argv[1], Path(sys.argv[2])
    pins = re.finditer(r"'(\w+)==([\d.]+) --hash=sha256:([0-9a-f]{64})'", Path("script/subprojects").read_text())
    held = [of_debian(each) for each in sorted(sources.glob("*.dsc"))] + [of_pypi(pin) for pin in pins]
    missing = LICENCES.keys() - {each.name for each in held}
    if missing:
        sys.exit(f"sbom.py: nothing says where {', '.join(sorted(missing))} came from")
    bom = Bom(components=held)
    bom.metadata.component = component("ringest", version, PackageURL("pypi", None, "ringest", version))
    bom.register_dependency(bom.metadata.component, held)
    print(JsonV1Dot6(bom).output_as_string(indent=2))


main()
