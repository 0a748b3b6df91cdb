//! Fetches a server and all of its libraries from a Debian suite into one folder, and touches nothing else.
//!
//! apt runs on folders of our own, against the mirror that the system is configured with. An empty status file makes
//! it resolve the whole closure, the C library included, so what is unpacked runs on any older system. No root needed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::places;

/// What is fetched, and from where.
pub struct Source {
    /// As a person calls it.
    pub name: &'static str,
    /// Of `.muster`.
    pub folder: &'static str,
    pub suite: &'static str,
    /// The first one is the server.
    pub wanted: &'static [&'static str],
    pub megabytes: u32,
    /// What to do where nothing can be fetched.
    pub otherwise: &'static str,
}

/// From the suite whose MySQL is a current one; Debian's stable releases carry only MariaDB.
pub const MYSQL: Source = Source {
    name: "MySQL",
    folder: "mysql",
    suite: "sid",
    wanted: &["mysql-server-core", "mysql-client-core", "libc6"],
    megabytes: 55,
    otherwise: "Install MySQL 8.0.16 or later so that `mysqld` is on PATH, or set DATABASE_URL to a running \
                one (mysql://user:password@host:port/database).",
};

/// From the release whose MariaDB is a 10.11.
pub const MARIADB: Source = Source {
    name: "MariaDB",
    folder: "mariadb",
    suite: "bookworm",
    wanted: &["mariadb-server-core", "libc6"],
    megabytes: 15,
    otherwise: "Set MARIADB_URL to a running MariaDB 10.11 (mysql://user:password@host:port/database).",
};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Downloads and unpacks into `root`, which appears only when complete.
pub fn unpack(source: &'static Source, root: &Path) -> Result<()> {
    let mirror = mirror(source)?;
    let started = std::time::Instant::now();
    let Source { name, folder, suite, megabytes, .. } = source;
    eprintln!("{name}: none here yet; fetching it from Debian's {suite} suite into .muster/{folder} (about {megabytes} MB, once)");
    let work = root.with_extension("unfinished");
    if work.exists() {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    let apt = Apt::prepare(source, &work.join("apt"), &mirror)?;
    apt.run(&["update"])?;
    let names = apt.closure()?;
    eprintln!("{name}: downloading {} packages", names.len());
    let packages = work.join("packages");
    let files = work.join("files");
    fs::create_dir_all(&packages)?;
    fs::create_dir_all(&files)?;
    apt.download(&names, &packages)?;
    for package in fs::read_dir(&packages)? {
        let package = package?.path();
        let status = Command::new("dpkg").arg("-x").arg(&package).arg(&files).status().context("`dpkg` cannot be started")?;
        if !status.success() {
            bail!("dpkg could not unpack {} ({status})", package.display());
        }
    }
    fs::rename(&files, root).with_context(|| format!("cannot name the folder {}", root.display()))?;
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    eprintln!("{name}: ready after {:.1} s", started.elapsed().as_secs_f32());
    Ok(())
}

/// The dynamic loader that came with the unpacked server.
pub fn loader(root: &Path) -> Result<PathBuf> {
    libraries(root)
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(Iterator::flatten)
        .map(|file| file.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux")))
        .with_context(|| format!("no loader below {}: remove that folder to fetch the server anew", root.display()))
}

/// Where the unpacked libraries lie: in newer releases below `/usr` alone, in older ones below `/` too.
pub fn libraries(root: &Path) -> Vec<PathBuf> {
    ["usr/lib", "lib"]
        .iter()
        .filter_map(|folder| fs::read_dir(root.join(folder)).ok())
        .flat_map(Iterator::flatten)
        .map(|folder| folder.path())
        .filter(|folder| folder.is_dir() && folder.to_string_lossy().contains("-linux-"))
        .collect()
}

/// The system's own mirror of this Debian release, as apt itself reads its configuration.
fn mirror(source: &Source) -> Result<String> {
    let Source { name: product, suite: wanted, otherwise, .. } = source;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(|value| value.trim_matches('"').to_owned())
    };
    if field("ID").as_deref() != Some("debian") {
        bail!("this machine has no {product}, and it can be fetched only on Debian. {otherwise}");
    }
    let codename = field("VERSION_CODENAME").unwrap_or_default();
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"])
        .output()
        .with_context(|| format!("this machine has no {product} and no `apt-get` to fetch it. {otherwise}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?, words.next()?))
        })
        .find(|(suite, component, _)| {
            *component == "main" && (*suite == codename || ["stable", "testing", "unstable", wanted].contains(suite))
        })
        .map(|(_, _, uri)| uri.to_owned())
        .with_context(|| format!("apt is configured with no mirror of Debian's main component. {otherwise}"))
}

struct Apt {
    source: &'static Source,
    options: Vec<String>,
}

impl Apt {
    fn prepare(source: &'static Source, folder: &Path, mirror: &str) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).with_context(|| format!("cannot create {}", part.display()))?;
        }
        let signed = if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let sources = folder.join("sources.list");
        fs::write(&sources, format!("deb {signed}{mirror} {} main\n", source.suite))?;
        let status = folder.join("status");
        fs::write(&status, "")?;
        let mut options = vec![
            format!("-oDir::Etc::SourceList={}", sources.display()),
            // apt-get never leaves a folder out because it is empty, so the system's parts are masked by a file.
            format!("-oDir::Etc::SourceParts={}", folder.join("none").display()),
            format!("-oDir::State::Lists={}", folder.join("lists").display()),
            format!("-oDir::Cache={}", folder.join("cache").display()),
            format!("-oDir::State::status={}", status.display()),
            "-oAcquire::Languages=none".to_owned(),
            "-oAcquire::Retries=3".to_owned(),
            "-qq".to_owned(),
        ];
        fs::create_dir_all(folder.join("none"))?;
        if effective_user_is_root() {
            // apt's own unprivileged user could not write into a folder of ours.
            options.push("-oAPT::Sandbox::User=root".to_owned());
        }
        Ok(Self { source, options })
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        self.run_in(words, &places::muster()?)
    }

    fn run_in(&self, words: &[&str], folder: &Path) -> Result<String> {
        let output =
            Command::new("apt-get").args(&self.options).args(words).current_dir(folder).output().context("`apt-get` cannot be started")?;
        if !output.status.success() {
            bail!(
                "fetching {} failed in `apt-get {}`: is the network reachable? {} apt-get says:\n{}",
                self.source.name,
                words.first().copied().unwrap_or_default(),
                self.source.otherwise,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What an installation into an empty system would bring. Names change in this suite, so they are never written down.
    fn closure(&self) -> Result<Vec<String>> {
        let mut words = vec!["-s", "--no-install-recommends", "install"];
        words.extend(self.source.wanted);
        let plan = self.run(&words)?;
        let names: Vec<String> = plan
            .lines()
            .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next())
            .filter(|name| !is_unneeded(name))
            .map(str::to_owned)
            .collect();
        let Source { suite, wanted, otherwise, .. } = self.source;
        if !names.iter().any(|name| name.starts_with(wanted[0])) {
            bail!("Debian's {suite} suite offers no {} at the moment. {otherwise}", wanted[0]);
        }
        Ok(names)
    }

    fn download(&self, names: &[String], folder: &Path) -> Result<()> {
        let mut words = vec!["download"];
        words.extend(names.iter().map(String::as_str));
        self.run_in(&words, folder).map(drop)
    }
}

/// Needed by the client's scripts only.
fn is_unneeded(name: &str) -> bool {
    name.starts_with("perl") || name.starts_with("libperl") || name.starts_with("libgdbm") || name.starts_with("gcc-")
}

/// Whether files that we create belong to root.
pub fn effective_user_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
