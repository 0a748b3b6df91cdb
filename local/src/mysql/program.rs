//! Which `mysqld` to run: the machine's, or one unpacked into `.muster/mysql`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::debian;
use crate::{environment, places};

/// The oldest MySQL that enforces CHECK constraints.
const OLDEST: Version = Version(8, 0, 16);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[derive(Debug)]
pub struct Program {
    pub version: Version,
    run: Run,
}

#[derive(Debug)]
enum Run {
    /// Installed on the machine; it knows its own folders.
    Installed(PathBuf),
    /// Unpacked, with its own C library: it is started through its own loader.
    Unpacked { root: PathBuf, loader: PathBuf },
}

impl Program {
    /// `mysqld` on `datadir`, with the options that every start of it needs.
    pub fn command(&self, datadir: &Path) -> Command {
        let mut command = self.run.bare();
        // Must be the first option.
        command.arg("--no-defaults");
        if let Run::Unpacked { root, .. } = &self.run {
            command
                .arg(format!("--basedir={}", root.join("usr").display()))
                .arg(format!("--lc-messages-dir={}", root.join("usr/share/mysql").display()))
                .arg(format!("--plugin-dir={}", root.join("usr/lib/mysql/plugin").display()));
        }
        command.arg(format!("--datadir={}", datadir.display())).arg("--secure-file-priv=NULL");
        if we_are_root() {
            command.arg("--user=root");
        }
        command
    }

    fn ask(run: Run) -> Result<Self> {
        let output = run.bare().arg("--version").output().with_context(|| format!("{run} cannot be started"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{run} --version failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        match mysql_version(&text) {
            Some(version) if version >= OLDEST => Ok(Self { version, run }),
            Some(version) => bail!("{run} is MySQL {version}; Muster needs {OLDEST} or later"),
            None => bail!("{run} is not MySQL: {}", text.trim()),
        }
    }
}

impl Run {
    fn bare(&self) -> Command {
        match self {
            Self::Installed(path) => Command::new(path),
            Self::Unpacked { root, loader } => {
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(loader.parent().unwrap_or(root)).arg(root.join("usr/sbin/mysqld"));
                command
            }
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed(path) => write!(f, "{}", path.display()),
            Self::Unpacked { root, .. } => write!(f, "{}/usr/sbin/mysqld", root.display()),
        }
    }
}

/// The machine's own MySQL if it is new enough, else the unpacked one, else fetches that.
pub fn find_or_fetch() -> Result<Program> {
    for path in installed() {
        if let Ok(program) = Program::ask(Run::Installed(path)) {
            return Ok(program);
        }
    }
    let _setup = places::lock_setup()?;
    let root = places::muster()?.join("mysql");
    if !root.exists() {
        debian::unpack(&root)?;
    }
    let loader = debian::loader(&root)?;
    Program::ask(Run::Unpacked { root: root.clone(), loader })
        .with_context(|| format!("the MySQL in {} does not run: remove that folder to fetch it anew", root.display()))
}

/// Every `mysqld` on PATH, and where packages put it outside an ordinary user's PATH.
fn installed() -> Vec<PathBuf> {
    let path = environment::variable("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/usr/local/mysql/bin"].map(PathBuf::from))
        .map(|folder| folder.join("mysqld"))
        .filter(|candidate| candidate.is_file())
        .collect()
}

/// `None` for MariaDB, which also calls itself `mysqld`.
fn mysql_version(text: &str) -> Option<Version> {
    if text.contains("MariaDB") {
        return None;
    }
    let (_, rest) = text.split_once("Ver ")?;
    let number = rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = number.split('.').map(str::parse);
    match (parts.next()?, parts.next()?, parts.next()?) {
        (Ok(major), Ok(minor), Ok(patch)) => Some(Version(major, minor, patch)),
        _ => None,
    }
}

/// `mysqld` refuses to run as root unless told to.
fn we_are_root() -> bool {
    super::debian::effective_user_is_root()
}

#[cfg(test)]
mod tests {
    use super::{OLDEST, Version, mysql_version};

    #[test]
    fn mysql_is_told_from_its_namesake_and_from_its_ancestors() {
        let debian = "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))";
        let ubuntu = "/usr/sbin/mysqld  Ver 8.0.41-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))";
        let old = "mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))";
        let maria = "mysqld  Ver 10.11.11-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(mysql_version(debian), Some(Version(9, 7, 4)));
        assert_eq!(mysql_version(ubuntu), Some(Version(8, 0, 41)));
        assert_eq!(mysql_version(maria), None);
        assert!(mysql_version(old).is_some_and(|version| version < OLDEST));
    }
}
