//! The part of CEL that the entries of a rule can express: an entry of a descriptor, and its
//! comparison with a text.
//!
//! ```text
//! variable  = "descriptors[" index "]" ( "." name | "[" text "]" )
//! condition = variable "==" text | text "==" variable
//! text      = '…' | "…", in which a backslash stands before ', " or a backslash
//! ```
//!
//! More than that is refused with its position: a rule that leaves a part of a condition out would
//! limit other calls than it says.

/// An entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// The index of the descriptor in a call.
    pub(super) descriptor: usize,
    /// The key of the entry.
    pub(super) key: String,
}

/// The error of an expression that entries cannot express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inexpressible {
    /// The position of the first byte that is too much.
    pub(super) at: usize,
    /// The problem there.
    pub(super) problem: &'static str,
}

const NO_VARIABLE: &str = "an entry like descriptors[0].user_id is needed here";
const NO_TEXT: &str = "a text in quotes is needed here: the values of entries are texts";
const NO_EQUALITY: &str = "only == compares here";
const MORE: &str = "rules cannot say more than one comparison of an entry with a text";

/// Parses an expression that is one entry.
pub(super) fn variable(text: &str) -> Result<Variable, Inexpressible> {
    let mut scanner = Scanner { text, at: 0 };
    let variable = scanner.variable()?;
    scanner.end("rules cannot say more than one entry of a descriptor")?;
    Ok(variable)
}

/// Parses an expression that compares an entry with a text.
pub(super) fn condition(text: &str) -> Result<(Variable, String), Inexpressible> {
    let mut scanner = Scanner { text, at: 0 };
    let first = scanner.text()?;
    let condition = if let Some(value) = first {
        scanner.expect("==", NO_EQUALITY)?;
        (scanner.variable()?, value)
    } else {
        let variable = scanner.variable()?;
        scanner.expect("==", NO_EQUALITY)?;
        let at = scanner.skipped();
        let value = scanner.text()?.ok_or(Inexpressible { at, problem: NO_TEXT })?;
        (variable, value)
    };
    scanner.end(MORE)?;
    Ok(condition)
}

/// A reader of an expression.
struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips white space, and returns the position behind it.
    fn skipped(&mut self) -> usize {
        let rest = self.rest();
        self.at = self.text.len().saturating_sub(rest.trim_start().len());
        self.at
    }

    fn take(&mut self, token: &str) -> bool {
        self.skipped();
        let is_there = self.rest().starts_with(token);
        if is_there {
            self.at = self.at.saturating_add(token.len());
        }
        is_there
    }

    fn expect(&mut self, token: &str, problem: &'static str) -> Result<(), Inexpressible> {
        if self.take(token) { Ok(()) } else { Err(Inexpressible { at: self.at, problem }) }
    }

    fn end(&mut self, problem: &'static str) -> Result<(), Inexpressible> {
        let at = self.skipped();
        if at == self.text.len() { Ok(()) } else { Err(Inexpressible { at, problem }) }
    }

    /// Takes the characters that may be in a name or a number.
    fn word(&mut self) -> &'t str {
        self.skipped();
        let rest = self.rest();
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let word = rest.get(..rest.find(is_other).unwrap_or(rest.len())).unwrap_or_default();
        self.at = self.at.saturating_add(word.len());
        word
    }

    fn variable(&mut self) -> Result<Variable, Inexpressible> {
        let at = self.skipped();
        if self.word() != "descriptors" {
            return Err(Inexpressible { at, problem: NO_VARIABLE });
        }
        self.expect("[", NO_VARIABLE)?;
        let at = self.skipped();
        let problem = "the index of a descriptor is needed here, from 0";
        let descriptor = self.word().parse().map_err(|_| Inexpressible { at, problem })?;
        self.expect("]", NO_VARIABLE)?;
        let key = if self.take(".") {
            let at = self.skipped();
            let key = self.word();
            if key.is_empty() || key.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(Inexpressible { at, problem: "the key of an entry is needed here" });
            }
            key.to_owned()
        } else {
            self.expect("[", NO_VARIABLE)?;
            let at = self.skipped();
            let key = self.text()?.ok_or(Inexpressible { at, problem: NO_TEXT })?;
            self.expect("]", NO_VARIABLE)?;
            key
        };
        Ok(Variable { descriptor, key })
    }

    /// Takes a text in quotes, if there is one.
    fn text(&mut self) -> Result<Option<String>, Inexpressible> {
        let start = self.skipped();
        let mut chars = self.rest().char_indices();
        let Some((_, quote @ ('\'' | '"'))) = chars.next() else { return Ok(None) };
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    let Some((_, escaped @ ('\'' | '"' | '\\'))) = chars.next() else {
                        let problem = "a backslash stands before a quote or a backslash alone";
                        return Err(Inexpressible { at: start.saturating_add(at), problem });
                    };
                    text.push(escaped);
                }
                // Three quotes begin another kind of text.
                c if c == quote && !(text.is_empty() && chars.as_str().starts_with(quote)) => {
                    self.at = start.saturating_add(at).saturating_add(1);
                    return Ok(Some(text));
                }
                c if c == quote => break,
                c => text.push(c),
            }
        }
        Err(Inexpressible { at: start, problem: "a text has a quote on both sides" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(descriptor: usize, key: &str) -> Variable {
        Variable { descriptor, key: key.to_owned() }
    }

    #[test]
    fn entries_are_read_in_both_forms() {
        for (text, expected) in [
            ("descriptors[0].user_id", entry(0, "user_id")),
            (" descriptors [ 12 ] . a ", entry(12, "a")),
            ("descriptors[1]['req.method']", entry(1, "req.method")),
            (r#"descriptors[0]["a\"b\\c"]"#, entry(0, r#"a"b\c"#)),
        ] {
            assert_eq!(variable(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn conditions_are_read_in_either_order() {
        for (text, key, value) in [
            ("descriptors[0].m == 'GET'", "m", "GET"),
            ("descriptors[0].m=='GET'", "m", "GET"),
            (r#""G'T" == descriptors[0]["m.x"]"#, "m.x", "G'T"),
            ("descriptors[0].m == ''", "m", ""),
            ("descriptors[0].m == 'ä == b'", "m", "ä == b"),
        ] {
            assert_eq!(condition(text), Ok((entry(0, key), value.to_owned())), "{text}");
        }
    }

    /// The position is that of the first byte that is too much.
    #[test]
    fn what_entries_cannot_express_is_refused_where_it_is() {
        for (text, at) in [
            ("", 0),
            ("user_id", 0),
            ("descriptors", 11),
            ("descriptors[x].a", 12),
            ("descriptors[-1].a", 12),
            ("descriptors[0]", 14),
            ("descriptors[0].", 15),
            ("descriptors[0].1a", 15),
            ("descriptors[0].a.b", 16),
            ("descriptors[0].a + 'x'", 17),
            ("descriptors[0]['a'", 18),
            ("descriptors[0]['''a''']", 15),
            ("size(descriptors)", 0),
            ("limit.name", 0),
        ] {
            assert_eq!(variable(text).unwrap_err().at, at, "{text}");
        }
        for (text, at) in [
            ("", 0),
            ("true", 0),
            ("req_method == 'GET'", 0),
            ("descriptors[0].m != 'GET'", 17),
            ("descriptors[0].m == 1", 20),
            ("descriptors[0].m == descriptors[0].n", 20),
            ("descriptors[0].m == 'a' && true", 24),
            ("descriptors[0].m == 'a' || descriptors[0].m == 'b'", 24),
            ("descriptors[0].m.startsWith('a')", 16),
            ("descriptors[0].m == 'a", 20),
            (r"descriptors[0].m == '\n'", 21),
            ("descriptors[0].m == r'a'", 20),
            ("'a' in descriptors[0]", 4),
            ("!(descriptors[0].m == 'a')", 0),
            ("descriptors[0].m == '''a'''", 20),
        ] {
            assert_eq!(condition(text).unwrap_err().at, at, "{text}");
        }
    }
}
