//! A fresh data directory: initialised once per version, copied for each start.

use std::fs::{self, File};
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, bail};

use super::program::{Brand, Program};
use crate::places;

/// The server runs without name resolution, so `root@localhost` is not who connects from 127.0.0.1.
const ROOT_BY_ADDRESS: &str = "\
CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
";

/// Copies the initialised template of the program's version to `datadir`, making it first if needed.
pub fn fill(program: &Program, datadir: &Path) -> Result<()> {
    let setup = places::lock_setup()?;
    let template = places::muster()?.join(format!("{}-template-{}", program.brand.to_string().to_lowercase(), program.version));
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
    let output = match program.brand {
        Brand::MySql => initialise_mysql(program, &unfinished)?,
        Brand::MariaDb => initialise_mariadb(program, &unfinished)?,
    };
    if !output.status.success() {
        bail!(
            "{} could not initialise a database in {} ({}). If the log names no reason, a security profile of the \
             system's mysqld may forbid that folder. Its log:\n{}",
            program.brand,
            unfinished.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::rename(&unfinished, template).with_context(|| format!("cannot name the folder {}", template.display()))
}

fn initialise_mysql(program: &Program, datadir: &Path) -> Result<Output> {
    // Beside the folder, because MySQL refuses to initialise one that is not empty.
    let first_statements = datadir.with_extension("sql");
    fs::write(&first_statements, ROOT_BY_ADDRESS).with_context(|| format!("cannot write {}", first_statements.display()))?;
    let output = program
        .command(datadir)
        .arg("--initialize-insecure")
        .arg(format!("--init-file={}", first_statements.display()))
        .arg("--loose-innodb-redo-log-capacity=8M")
        .output()
        .context("MySQL cannot be started to initialise a database")?;
    // Left behind it does no harm: the next initialisation writes it anew.
    let _ = fs::remove_file(&first_statements);
    Ok(output)
}

/// MariaDB is initialised by the statements that its own `mariadb-install-db` feeds to it.
fn initialise_mariadb(program: &Program, datadir: &Path) -> Result<Output> {
    let mut statements = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n".to_owned();
    for part in ["mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data", "mysql_sys_schema"] {
        let path = program.share().join(part).with_extension("sql");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // Accounts for this machine's name; root comes by address.
        statements.extend(text.lines().filter(|line| !line.contains("@current_hostname")).flat_map(|line| [line, "\n"]));
    }
    fs::create_dir(datadir).with_context(|| format!("cannot create {}", datadir.display()))?;
    let first_statements = datadir.with_extension("sql");
    fs::write(&first_statements, statements).with_context(|| format!("cannot write {}", first_statements.display()))?;
    let input = File::open(&first_statements).with_context(|| format!("cannot read {}", first_statements.display()))?;
    let output = program
        .command(datadir)
        .args(["--bootstrap", "--log-warnings=0", "--enforce-storage-engine=", "--max-allowed-packet=8M", "--net-buffer-length=16K"])
        .arg("--innodb-log-file-size=8M")
        .stdin(input)
        .output()
        .context("MariaDB cannot be started to initialise a database")?;
    // Left behind it does no harm: the next initialisation writes it anew.
    let _ = fs::remove_file(&first_statements);
    Ok(output)
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
