//! template.yaml as JSON, with CloudFormation's short forms written out: `!Ref X` is `{"Ref": "X"}`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use serde_yaml_ng::Value as Yaml;

pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the checkout")
}

pub fn template() -> Value {
    let text = fs::read_to_string(checkout().join("template.yaml")).expect("template.yaml is there");
    json_of(serde_yaml_ng::from_str(&text).expect("template.yaml is YAML"))
}

fn json_of(yaml: Yaml) -> Value {
    match yaml {
        Yaml::Tagged(tagged) => {
            let name = tagged.tag.to_string();
            let name = name.trim_start_matches('!');
            let value = json_of(tagged.value);
            match (name, &value) {
                ("Ref" | "Condition", _) => json!({ name: value }),
                ("GetAtt", Value::String(path)) => {
                    let (resource, attribute) = path.split_once('.').expect("RESOURCE.ATTRIBUTE");
                    json!({ "Fn::GetAtt": [resource, attribute] })
                }
                _ => json!({ format!("Fn::{name}"): value }),
            }
        }
        Yaml::Sequence(items) => items.into_iter().map(json_of).collect(),
        Yaml::Mapping(entries) => {
            let entries = entries.into_iter().map(|(key, value)| (key.as_str().expect("keys are text").to_owned(), json_of(value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        scalar => serde_json::to_value(scalar).expect("a scalar is JSON"),
    }
}

/// The resources of a type, by their logical names.
pub fn resources<'t>(template: &'t Value, of: &'t str) -> impl Iterator<Item = (&'t str, &'t Value)> {
    let all = template["Resources"].as_object().expect("there are resources");
    all.iter().filter(move |(_, one)| one["Type"] == of).map(|(name, one)| (name.as_str(), one))
}

/// The functions, by the names of their binaries.
pub fn functions(template: &Value) -> impl Iterator<Item = (&str, &Value)> {
    resources(template, "AWS::Serverless::Function")
        .map(|(name, one)| (one.pointer("/Metadata/BuildProperties/Binary").and_then(Value::as_str).unwrap_or(name), &one["Properties"]))
}

/// A list, or the one thing that stands for a list of one.
pub fn list(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    }
}

/// Every Rust file of what is deployed.
pub fn sources() -> Vec<String> {
    let mut folders: Vec<PathBuf> = ["shared/src", "adapters/src", "functions"].map(|folder| checkout().join(folder)).into();
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the sources") {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source is text");
                // Tests may log what they like.
                texts.push(text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
            }
        }
    }
    texts
}

pub mod documents {
    use std::collections::BTreeSet;

    use super::{checkout, fs};

    /// What follows `mark` at the beginning of a line.
    pub fn headings(document: &str, mark: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(checkout().join(document)).expect("the document is there");
        text.lines().filter_map(|line| line.strip_prefix(mark)).map(|heading| heading.trim_matches('`').to_owned()).collect()
    }

    /// The words in backticks that begin the rows of the table under a heading.
    pub fn first_cells(document: &str, heading: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(checkout().join(document)).expect("the document is there");
        let below = text.lines().skip_while(|line| *line != heading).skip(1).take_while(|line| !line.starts_with("## "));
        below.filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
    }
}
