"""Checks template.yaml with every tool that needs no AWS account and no network, once the tools are there.

usage: check_template.py            all checks, each with its time; exit status 1 if any fails
       check_template.py build      `sam build` of all functions as well, and the sizes of their binaries

cfn-lint and `sam validate --lint` do not look inside SAM's resources, so what the SAM transform makes is linted too.
SAM's and checkov's dependencies exclude those of the local cloud: each tool has an environment of its own in .muster.
"""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MUSTER = CHECKOUT / ".muster"
TEMPLATE = CHECKOUT / "template.yaml"
REGION = "eu-west-1"
SAM = "aws-sam-cli==1.170.0"
CHECKOV = "checkov==3.3.30"
# What Lambda takes is far larger; a cold start reads all of it.
SIZE_LIMIT = 10_000_000


def main(arguments):
    if arguments not in ([], ["build"]):
        sys.exit(__doc__)
    started = time.monotonic()
    sam = installed("venv-sam", SAM) / "sam"
    if arguments == ["build"]:
        failed = [name for name, passed in (("sam build", build(sam)),) if not passed]
    else:
        checkov = installed("venv-checkov", CHECKOV) / "checkov"
        failed = [name for name, passed in checks(sam, checkov) if not passed]
    print(f"{'FAILED: ' + ', '.join(failed) if failed else 'all passed'}, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


def checks(sam, checkov):
    # This script runs in the environment that has cfn-lint and the SAM transform.
    cfn_lint = pathlib.Path(sys.executable).with_name("cfn-lint")
    with tempfile.TemporaryDirectory(dir=MUSTER) as folder:
        made = pathlib.Path(folder) / "transformed.json"
        yield "cfn-lint template.yaml", run("cfn-lint template.yaml", [cfn_lint, TEMPLATE])
        yield "SAM transform", transform(made)
        yield "cfn-lint of the transformed", run("cfn-lint of the transformed template", [cfn_lint, made])
        validate = [sam, "validate", "--lint", "--template", TEMPLATE, "--region", REGION]
        yield "sam validate --lint", run("sam validate --lint", validate)
        yield "checkov", run("checkov", [checkov, "--config-file", CHECKOUT / ".checkov.yaml", "--file", TEMPLATE])


def transform(made):
    started = time.monotonic()
    os.environ.setdefault("AWS_DEFAULT_REGION", REGION)
    from stack import transformed  # Not before the region is set: SAM asks for it.

    try:
        template = transformed(TEMPLATE)
    except Exception as error:  # SAM's own message says what is wrong with the template.
        return report("SAM transform", started, f"{getattr(error, 'message', error)}\n", False)
    made.write_text(json.dumps(template, indent=1))
    return report("SAM transform", started, f"{len(template['Resources'])} resources\n", True)


def build(sam):
    """A release build of all functions by SAM: minutes."""
    architecture = "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"
    passed = run(
        "sam build",
        [sam, "build", "--template", TEMPLATE, "--region", REGION, "--parameter-overrides", f"Architecture={architecture}"],
        # No other linker and no other C library than those of this machine are needed.
        CARGO_LAMBDA_COMPILER="cargo",
    )
    binaries = sorted((CHECKOUT / ".aws-sam/build").glob("*/bootstrap"))
    for binary in binaries:
        size = binary.stat().st_size
        print(f"  {binary.parent.name:20} {size / 1e6:5.1f} MB{'' if size <= SIZE_LIMIT else '  more than the limit of 10 MB'}")
    return passed and len(binaries) == 6 and all(binary.stat().st_size <= SIZE_LIMIT for binary in binaries)


def run(name, command, **variables):
    started = time.monotonic()
    environment = os.environ | {
        "SAM_CLI_TELEMETRY": "0",
        "AWS_DEFAULT_REGION": REGION,
        # cargo-lambda of .muster, where the machine has none.
        "PATH": f"{os.environ.get('PATH', '')}{os.pathsep}{MUSTER / 'venv/bin'}",
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=CHECKOUT,
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return report(name, started, done.stdout, done.returncode == 0)


def report(name, started, output, passed):
    print(f"{'passed' if passed else 'FAILED'} {name}, {time.monotonic() - started:.1f} s", flush=True)
    for line in output.splitlines():
        if line.strip():
            print(f"  {line}", flush=True)
    return passed


def installed(name, wheel):
    """The programs of an environment that has this wheel."""
    environment = MUSTER / name
    programs = environment / "bin"
    marker = environment / "installed"
    if marker.exists() and marker.read_text() == wheel:
        return programs
    print(f"tools: installing {wheel} into .muster/{name} (once)", flush=True)
    subprocess.run(["python3", "-m", "venv", "--clear", str(environment)], check=True)
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    if subprocess.run(pip, check=False).returncode != 0:
        sys.exit(f"pip cannot install {wheel}: is the network reachable?")
    marker.write_text(wheel)
    return programs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
