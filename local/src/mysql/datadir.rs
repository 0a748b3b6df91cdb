//! A fresh data directory: initialised once per version, copied for each start.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::program::Program;
use crate::places;

/// The server runs without name resolution, so `root@localhost` is not who connects from 127.0.0.1.
const ROOT_BY_ADDRESS: &str = "\
CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
";

/// Copies the initialised template of the program's version to `datadir`, making it first if needed.
pub fn fill(program: &Program, datadir: &Path) -> Result<()> {
    let setup = places::lock_setup()?;
    let template = places::muster()?.join(format!("mysql-template-{}", program.version));
    if !template.exists() {
        initialise(program, &template)?;
    }
    drop(setup);
    copy(&template, datadir).with_context(|| format!("the fresh database cannot be copied to {}: is the disk full?", datadir.display()))?;
    // Each server has an identity of its own; the next start makes it.
    let _ = fs::remove_file(datadir.join("auto.cnf"));
    Ok(())
}

fn initialise(program: &Program, template: &Path) -> Result<()> {
    // Renamed when complete, so that an aborted initialisation is never taken for a database.
    let unfinished = template.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    // Beside the folder, because MySQL refuses to initialise one that is not empty.
    let first_statements = template.with_extension("sql");
    fs::write(&first_statements, ROOT_BY_ADDRESS).with_context(|| format!("cannot write {}", first_statements.display()))?;
    let output = program
        .command(&unfinished)
        .arg("--initialize-insecure")
        .arg(format!("--init-file={}", first_statements.display()))
        .arg("--loose-innodb-redo-log-capacity=8M")
        .output()
        .context("MySQL cannot be started to initialise a database")?;
    // Left behind it does no harm: the next initialisation writes it anew.
    let _ = fs::remove_file(&first_statements);
    if !output.status.success() {
        bail!(
            "MySQL could not initialise a database in {} ({}). If the log names no reason, a security profile of the \
             system's mysqld may forbid that folder. Its log:\n{}",
            unfinished.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::rename(&unfinished, template).with_context(|| format!("cannot name the folder {}", template.display()))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
