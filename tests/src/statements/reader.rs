//! Just as much of Rust as SQL texts are written in: string literals, `concat!`, and macros of literals that concatenate.

use std::collections::BTreeMap;

/// The macros that put texts together, by file and name.
#[derive(Debug, Default)]
pub struct Macros(BTreeMap<(String, String), Macro>);

#[derive(Debug)]
struct Macro {
    parameters: Vec<String>,
    body: String,
}

impl Macros {
    /// Takes in the macros of a file whose bodies are a `concat!`.
    pub fn learn(&mut self, file: &str, source: &str) {
        for rest in source.split("macro_rules! ").skip(1) {
            let Some((name, rest)) = rest.split_once(" {") else { continue };
            let Some((pattern, rest)) = rest.split_once("=> {") else { continue };
            let body = rest.trim_start();
            if !body.starts_with("concat!(") {
                continue;
            }
            let parameters = pattern.split('$').skip(1).filter_map(|one| one.split(':').next()).map(str::to_owned).collect();
            self.0.insert((file.to_owned(), name.to_owned()), Macro { parameters, body: body.to_owned() });
        }
    }

    /// The file's own, else another's.
    fn find(&self, file: &str, name: &str) -> Option<&Macro> {
        self.0.get(&(file.to_owned(), name.to_owned())).or_else(|| self.0.iter().find(|((_, other), _)| other == name).map(|(_, one)| one))
    }
}

/// Every text of a file that opens with a name.
pub fn texts(file: &str, source: &str, macros: &Macros) -> Vec<String> {
    // What follows are unit tests, which speak of texts.
    let source = source.split("#[cfg(test)]").next().unwrap_or(source);
    // The opening of a `concat!` is read with the rest of it.
    let plain = source.match_indices("\"/* ").map(|(at, _)| at).filter(|at| !source[..*at].trim_end().ends_with("concat!("));
    let joined = source.match_indices("!(").filter_map(|(at, _)| {
        let from = source[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |before| before + 1);
        let name = &source[from..at];
        // Of a constant, not inside another text.
        let is_value = source[..from].trim_end().ends_with('=');
        (is_value && (name == "concat" || macros.find(file, name).is_some())).then_some(from)
    });
    let mut found = Vec::new();
    for at in plain.chain(joined) {
        let mut reader = Reader { rest: &source[at..], file, macros, given: &BTreeMap::new() };
        let Some(text) = reader.expression() else { continue };
        if text.starts_with("/* ") && text.contains(" */") {
            found.push(text);
        }
    }
    found
}

struct Reader<'s> {
    rest: &'s str,
    file: &'s str,
    macros: &'s Macros,
    /// What a macro's parameters stand for.
    given: &'s BTreeMap<String, String>,
}

impl Reader<'_> {
    fn expression(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix('"') {
            self.rest = rest;
            return Some(self.literal());
        }
        let parameter = self.rest.strip_prefix('$');
        self.rest = parameter.unwrap_or(self.rest);
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if parameter.is_some() {
            return self.given.get(name).cloned();
        }
        self.rest = self.rest.strip_prefix("!(")?;
        let arguments = self.arguments()?;
        if name == "concat" {
            return Some(arguments.concat());
        }
        let known = self.macros.find(self.file, name)?;
        let given: BTreeMap<String, String> = known.parameters.iter().cloned().zip(arguments).collect();
        Reader { rest: &known.body, file: self.file, macros: self.macros, given: &given }.expression()
    }

    fn arguments(&mut self) -> Option<Vec<String>> {
        let mut arguments = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix(')') {
                self.rest = rest;
                return Some(arguments);
            }
            arguments.push(self.expression()?);
            self.rest = self.rest.trim_start();
            self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
        }
    }

    /// After the opening quote; a backslash at the end of a line leaves out what is before the next word.
    fn literal(&mut self) -> String {
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    break;
                }
                '\\' => match characters.next() {
                    Some((next, '\n')) => {
                        let rest = self.rest[next..].trim_start();
                        self.rest = rest;
                        characters = rest.char_indices();
                    }
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                c => text.push(c),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_put_together_as_the_compiler_does_it() {
        let source = r#"
macro_rules! select_target {
    ($name:literal, $rest:literal) => {
        concat!("/* ", $name, " */ SELECT 1 \
             FROM target ", $rest)
    };
}
const A: &str = select_target!("targets.read", "WHERE x = '\\%'");
const B: &str = "/* claim.take */ \
    INSERT 1";
const C: &str = concat!("/* c.c */ ", time!("x"), " z");
macro_rules! time {
    ($e:literal) => {
        concat!("DATE(", $e, ")")
    };
}
"#;
        let mut macros = Macros::default();
        macros.learn("a.rs", source);
        let mut found = texts("a.rs", source, &macros);
        found.sort();
        assert_eq!(found, ["/* c.c */ DATE(x) z", "/* claim.take */ INSERT 1", "/* targets.read */ SELECT 1 FROM target WHERE x = '\\%'"]);
    }
}
