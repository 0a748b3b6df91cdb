//! The small part of GraphQL that one query needs: variables, nested fields, aliases, arguments. No fragments, no
//! directives, no mutations.

use std::{collections::BTreeMap, iter::Peekable, str::Chars};

use serde_json::Value;

pub(crate) struct Operation {
    pub variables: Vec<Declared>,
    pub fields: Vec<Field>,
}

pub(crate) struct Declared {
    pub name: String,
    /// As written, such as `[String!]!`.
    pub kind: String,
    pub required: bool,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub alias: Option<String>,
    pub name: String,
    pub arguments: BTreeMap<String, Argument>,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) enum Argument {
    Value(Value),
    Variable(String),
    List(Vec<Argument>),
}

impl Field {
    /// The name the answer carries.
    pub fn key(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}

impl Field {
    fn uses(&self, variable: &str) -> bool {
        self.arguments.values().any(|argument| argument.uses(variable)) || self.fields.iter().any(|field| field.uses(variable))
    }
}

impl Argument {
    fn uses(&self, variable: &str) -> bool {
        match self {
            Self::Value(_) => false,
            Self::Variable(name) => name == variable,
            Self::List(items) => items.iter().any(|item| item.uses(variable)),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Number(String),
    Mark(char),
}

/// Parses one query; the error is what a GraphQL server would say.
pub(crate) fn parse(query: &str) -> Result<Operation, String> {
    let mut reader = Reader { tokens: tokens(query)?, at: 0 };
    let mut variables = Vec::new();
    if reader.take_name("query") {
        if let Some(Token::Name(_)) = reader.peek() {
            reader.at += 1;
        }
        if reader.take('(') {
            while !reader.take(')') {
                variables.push(reader.declared()?);
            }
        }
    }
    let fields = reader.selection()?;
    let unused = variables.iter().find(|declared| !fields.iter().any(|field| field.uses(&declared.name)));
    if let Some(unused) = unused {
        return Err(format!("Variable ${} is declared by query but not used", unused.name));
    }
    match reader.peek() {
        None => Ok(Operation { variables, fields }),
        Some(token) => Err(unexpected(Some(token))),
    }
}

fn unexpected(token: Option<&Token>) -> String {
    match token {
        None => "Unexpected end of document".to_owned(),
        Some(Token::Name(text) | Token::Text(text) | Token::Number(text)) => {
            format!("Parse error: unexpected \"{text}\"")
        }
        Some(Token::Mark(mark)) => format!("Parse error: unexpected \"{mark}\""),
    }
}

struct Reader {
    tokens: Vec<Token>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(unexpected(self.peek())) }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.next() {
            Some(Token::Name(name)) => Ok(name),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn declared(&mut self) -> Result<Declared, String> {
        self.expect('$')?;
        let name = self.name()?;
        self.expect(':')?;
        let kind = self.kind()?;
        let required = kind.ends_with('!');
        Ok(Declared { name, kind, required })
    }

    fn kind(&mut self) -> Result<String, String> {
        let mut kind = if self.take('[') {
            let inner = self.kind()?;
            self.expect(']')?;
            format!("[{inner}]")
        } else {
            self.name()?
        };
        if self.take('!') {
            kind.push('!');
        }
        Ok(kind)
    }

    fn selection(&mut self) -> Result<Vec<Field>, String> {
        self.expect('{')?;
        let mut fields = Vec::new();
        while !self.take('}') {
            fields.push(self.field()?);
        }
        if fields.is_empty() { Err("Parse error: unexpected \"}\"".to_owned()) } else { Ok(fields) }
    }

    fn field(&mut self) -> Result<Field, String> {
        let first = self.name()?;
        let (alias, name) = if self.take(':') { (Some(first), self.name()?) } else { (None, first) };
        let mut arguments = BTreeMap::new();
        if self.take('(') {
            while !self.take(')') {
                let argument = self.name()?;
                self.expect(':')?;
                arguments.insert(argument, self.argument()?);
            }
        }
        let fields = if self.peek() == Some(&Token::Mark('{')) { self.selection()? } else { Vec::new() };
        Ok(Field { alias, name, arguments, fields })
    }

    fn argument(&mut self) -> Result<Argument, String> {
        if self.take('$') {
            return self.name().map(Argument::Variable);
        }
        if self.take('[') {
            let mut items = Vec::new();
            while !self.take(']') {
                items.push(self.argument()?);
            }
            return Ok(Argument::List(items));
        }
        match self.next() {
            Some(Token::Text(text)) => Ok(Argument::Value(Value::String(text))),
            Some(Token::Name(name)) => Ok(Argument::Value(match name.as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" => Value::Null,
                _ => Value::String(name),
            })),
            Some(Token::Number(number)) => {
                serde_json::from_str(&number).map(Argument::Value).map_err(|_bad| unexpected(Some(&Token::Number(number))))
            }
            other => Err(unexpected(other.as_ref())),
        }
    }
}

fn tokens(query: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = query.chars().peekable();
    while let Some(&first) = chars.peek() {
        if first.is_whitespace() || first == ',' {
            chars.next();
        } else if first == '#' {
            while chars.next_if(|next| *next != '\n').is_some() {}
        } else if first.is_ascii_alphabetic() || first == '_' {
            tokens.push(Token::Name(take_while(&mut chars, |next| next.is_ascii_alphanumeric() || next == '_')));
        } else if first.is_ascii_digit() || first == '-' {
            tokens.push(Token::Number(take_while(&mut chars, |next| next.is_ascii_digit() || "-.eE+".contains(next))));
        } else if first == '"' {
            tokens.push(Token::Text(text(&mut chars)?));
        } else if "{}()[]:!$".contains(first) {
            chars.next();
            tokens.push(Token::Mark(first));
        } else {
            return Err(format!("Parse error: unexpected \"{first}\""));
        }
    }
    Ok(tokens)
}

fn take_while(chars: &mut Peekable<Chars<'_>>, wanted: impl Fn(char) -> bool) -> String {
    std::iter::from_fn(|| chars.next_if(|next| wanted(*next))).collect()
}

/// A quoted text: GraphQL's escapes are JSON's.
fn text(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut raw = String::from(chars.next().unwrap_or('"'));
    let mut escaped = false;
    for next in chars.by_ref() {
        raw.push(next);
        match next {
            '"' if !escaped => {
                return serde_json::from_str(&raw).map_err(|_bad| format!("Parse error: bad text {raw}"));
            }
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err("Parse error: a text is not closed".to_owned())
}
