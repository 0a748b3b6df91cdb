//! Puts all mutants of one file into its text, each behind a question asked at run time.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};

use super::VARIABLE;
use super::list::{Mutant, Place};

/// The file's text with every mutant in it. Without a chosen mutant it does what the original does.
///
/// # Errors
/// If a text does not stand in the file once, or two overlap without being the same.
pub fn into(source: &str, mutants: &[&Mutant]) -> Result<String> {
    let mut seams: BTreeMap<usize, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        seams.entry(position(source, mutant)?).or_default().push(mutant);
    }
    let mut woven = String::with_capacity(source.len() * 2);
    let mut done = 0;
    for (from, here) in seams {
        let text = &here[0].text;
        if from < done || here.iter().any(|one| one.text != *text) {
            bail!("the text of the mutant {} overlaps another's", here[0].id);
        }
        woven.push_str(&source[done..from]);
        woven.push('(');
        for mutant in here {
            woven.push_str(&format!("if crate::mutated(\"{}\") {{ {} }} else ", mutant.id, mutant.replacement));
        }
        woven.push_str(&format!("{{ {text} }})"));
        done = from + text.len();
    }
    woven.push_str(&source[done..]);
    Ok(woven)
}

/// Where the mutant's text begins.
///
/// # Errors
/// If it is not there, or more than once.
pub fn position(source: &str, mutant: &Mutant) -> Result<usize> {
    let Place::File { path, within } = mutant.place() else { bail!("the mutant {} is one of SQL", mutant.id) };
    let start = match within {
        Some(context) => once(source, context).ok_or_else(|| anyhow!("the context of the mutant {} is not once in {path}", mutant.id))?,
        None => 0,
    };
    let searched = within.unwrap_or(source);
    match once(searched, &mutant.text) {
        Some(at) => Ok(start + at),
        None => bail!("the text of the mutant {} does not stand once in {path}, or in its context", mutant.id),
    }
}

fn once(text: &str, part: &str) -> Option<usize> {
    let mut found = text.match_indices(part);
    match (found.next(), found.next()) {
        (Some((at, _)), None) => Some(at),
        _ => None,
    }
}

/// The crate's root with what the woven texts ask.
pub fn with_question(root: &str) -> String {
    format!(
        "// A replacement may leave something unused.\n#![allow(warnings)]\n{root}\n/// Is this mutant in place?\n\
         pub fn mutated(id: &str) -> bool {{\n    \
         static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();\n    \
         CHOSEN.get_or_init(|| std::env::var(\"{VARIABLE}\").unwrap_or_default()) == id\n}}\n"
    )
}
