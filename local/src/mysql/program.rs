//! Which server program to run: the machine's MySQL, or one unpacked into `.muster`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::debian;
use crate::{environment, places};

/// The oldest MySQL that enforces CHECK constraints.
const OLDEST: Version = Version(8, 0, 16);

/// Two relatives that speak one protocol and almost one SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brand {
    MySql,
    MariaDb,
}

impl Brand {
    fn source(self) -> &'static debian::Source {
        match self {
            Self::MySql => &debian::MYSQL,
            Self::MariaDb => &debian::MARIADB,
        }
    }
}

impl fmt::Display for Brand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source().name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[derive(Debug)]
pub struct Program {
    pub brand: Brand,
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
    /// The server on `datadir`, with the options that every start of it needs.
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
        command.arg(format!("--datadir={}", datadir.display()));
        match self.brand {
            Brand::MySql => command.arg("--secure-file-priv=NULL"),
            Brand::MariaDb => {
                command.arg(format!("--character-sets-dir={}", self.share().join("charsets").display())).arg("--performance-schema=ON")
            }
        };
        if we_are_root() {
            command.arg("--user=root");
        }
        command
    }

    /// Where an unpacked server keeps what it reads at its first start.
    pub fn share(&self) -> PathBuf {
        match &self.run {
            Run::Installed(_) => PathBuf::from("/usr/share/mysql"),
            Run::Unpacked { root, .. } => root.join("usr/share/mysql"),
        }
    }

    fn ask(brand: Brand, run: Run) -> Result<Self> {
        let output = run.bare().arg("--version").output().with_context(|| format!("{run} cannot be started"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{run} --version failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        match version(&text) {
            Some((found, version)) if found == brand && version >= OLDEST => Ok(Self { brand, version, run }),
            Some((Brand::MySql, version)) if brand == Brand::MySql => bail!("{run} is MySQL {version}; Muster needs {OLDEST} or later"),
            _ => bail!("{run} is not {brand}: {}", text.trim()),
        }
    }
}

impl Run {
    fn bare(&self) -> Command {
        match self {
            Self::Installed(path) => Command::new(path),
            Self::Unpacked { root, loader } => {
                let libraries: Vec<String> = debian::libraries(root).iter().map(|folder| folder.display().to_string()).collect();
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(libraries.join(":")).arg(root.join("usr/sbin/mysqld"));
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

/// The machine's own MySQL if it is new enough, else the unpacked one, else fetches that. A MariaDB is always the
/// fetched one: it is there to be compared with, at one version.
pub fn find_or_fetch(brand: Brand) -> Result<Program> {
    if brand == Brand::MySql {
        for path in installed() {
            if let Ok(program) = Program::ask(brand, Run::Installed(path)) {
                return Ok(program);
            }
        }
    }
    let _setup = places::lock_setup()?;
    let source = brand.source();
    let root = places::muster()?.join(source.folder);
    if !root.exists() {
        debian::unpack(source, &root)?;
    }
    let loader = debian::loader(&root)?;
    Program::ask(brand, Run::Unpacked { root: root.clone(), loader })
        .with_context(|| format!("the {brand} in {} does not run: remove that folder to fetch it anew", root.display()))
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

/// MariaDB also calls itself `mysqld`. `None` for anything else.
fn version(text: &str) -> Option<(Brand, Version)> {
    let brand = if text.contains("MariaDB") { Brand::MariaDb } else { Brand::MySql };
    let (_, rest) = text.split_once("Ver ")?;
    let number = rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = number.split('.').map(str::parse);
    match (parts.next()?, parts.next()?, parts.next()?) {
        (Ok(major), Ok(minor), Ok(patch)) => Some((brand, Version(major, minor, patch))),
        _ => None,
    }
}

/// `mysqld` refuses to run as root unless told to.
fn we_are_root() -> bool {
    super::debian::effective_user_is_root()
}

#[cfg(test)]
mod tests {
    use super::{Brand, OLDEST, Version, version};

    #[test]
    fn mysql_is_told_from_its_namesake_and_from_its_ancestors() {
        let debian = "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))";
        let ubuntu = "/usr/sbin/mysqld  Ver 8.0.41-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))";
        let old = "mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))";
        let maria = "mysqld  Ver 10.11.11-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(version(debian), Some((Brand::MySql, Version(9, 7, 4))));
        assert_eq!(version(ubuntu), Some((Brand::MySql, Version(8, 0, 41))));
        assert_eq!(version(maria), Some((Brand::MariaDb, Version(10, 11, 11))));
        assert!(version(old).is_some_and(|(_, version)| version < OLDEST));
    }
}
