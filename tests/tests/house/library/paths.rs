//! The paths that stand in a file. They are read from its tokens, so that those in macros are seen as well.

use std::ops::Range;

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;

use crate::library::builds::{PRODUCT, lacking};
use crate::library::modules::{Child, Library, ModuleId};

/// A path, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamePath {
    pub(crate) names: Vec<String>,
    /// With a `::` in front: of another crate.
    pub(crate) absolute: bool,
    /// It stands in a `use`.
    pub(crate) of_use: bool,
}

impl NamePath {
    pub(crate) fn of_use(names: Vec<String>, absolute: bool) -> Self {
        NamePath {
            names,
            absolute,
            of_use: true,
        }
    }

    fn of_code(names: Vec<String>, absolute: bool) -> Self {
        NamePath {
            names,
            absolute,
            of_use: false,
        }
    }

    /// A path of the syntax tree, without its arguments.
    pub(crate) fn of_syntax(path: &syn::Path) -> Self {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.unraw().to_string());
        NamePath::of_code(names.collect(), path.leading_colon.is_some())
    }

    /// Whether it begins with a place in this crate, and not with a name that is in scope.
    pub(crate) fn is_anchored(&self) -> bool {
        let first = self.names.first().map(String::as_str);
        !self.absolute && matches!(first, Some("crate" | "self" | "super"))
    }
}

/// A path, and where it stands.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) module: ModuleId,
    pub(crate) line: usize,
    pub(crate) path: NamePath,
    /// `use path::*`.
    pub(crate) glob: bool,
    /// `name!`, with no path in front.
    pub(crate) bare_macro: bool,
}

/// All paths of a library in code that is not of its tests: whole `use`s, names behind a `::`, and macros.
pub(crate) fn mentions(library: &Library) -> Vec<Mention> {
    let mut mentions = Vec::new();
    let files = library.modules.iter().enumerate();
    for (module, _) in files.filter(|(_, module)| module.is_file && !module.of_tests) {
        let file = library.file_of(module);
        let tokens = file.text.parse().expect("it was parsed before");
        let mut scan = Scan {
            library,
            hidden: lacking(PRODUCT, &file.syntax),
            mentions: &mut mentions,
        };
        scan.block(tokens, module);
    }
    mentions
}

struct Scan<'a> {
    library: &'a Library,
    hidden: Vec<Range<usize>>,
    mentions: &'a mut Vec<Mention>,
}

impl Scan<'_> {
    fn block(&mut self, tokens: TokenStream, module: ModuleId) {
        let tokens = Tokens::of(tokens, &self.hidden);
        let mut at = 0;
        while let Some(token) = tokens.0.get(at) {
            at = match token {
                TokenTree::Group(group) => {
                    self.block(group.stream(), module);
                    at + 1
                }
                _ if tokens.is_word(at, "mod") => self.inner_module(&tokens, at, module),
                _ if tokens.is_word(at, "use") && !tokens.is_punct(at + 1, '<') => {
                    let absolute = tokens.is_double_colon(at + 1);
                    let start = if absolute { at + 3 } else { at + 1 };
                    self.use_tree(&tokens, start, module, &[], absolute)
                }
                _ if tokens.is_word(at, "extern") && tokens.is_word(at + 1, "crate") => {
                    let names = tokens.word(at + 2).into_iter().collect();
                    self.mention(&tokens, at, module, NamePath::of_use(names, true));
                    at + 3
                }
                // A visibility such as `pub(in crate::store)` imports nothing.
                _ if tokens.is_word(at, "pub") && tokens.is_scope(at + 1) => at + 2,
                _ => self.code_path(&tokens, at, module),
            };
        }
    }

    /// `mod name { ... }`: what stands in it has another `self`.
    fn inner_module(&mut self, tokens: &Tokens, at: usize, module: ModuleId) -> usize {
        let child = tokens
            .word(at + 1)
            .and_then(|name| self.library.modules[module].children.get(&name));
        if let (Some(Child::Inside(child)), Some(TokenTree::Group(block))) =
            (child, tokens.0.get(at + 2))
        {
            self.block(block.stream(), *child);
            return at + 3;
        }
        at + 1
    }

    /// One tree of a `use`, up to the `,` or `;` behind it.
    fn use_tree(
        &mut self,
        tokens: &Tokens,
        mut at: usize,
        module: ModuleId,
        prefix: &[String],
        absolute: bool,
    ) -> usize {
        let mut names = prefix.to_vec();
        let start = at;
        // In a macro's rules, the crate is `$crate`.
        if tokens.is_punct(at, '$') {
            at += 1;
        }
        loop {
            if let Some(TokenTree::Group(group)) = tokens.0.get(at) {
                let inner = Tokens::of(group.stream(), &self.hidden);
                let mut next = 0;
                while next < inner.0.len() {
                    next = self.use_tree(&inner, next, module, &names, absolute) + 1;
                }
                return at + 1;
            }
            if tokens.is_punct(at, '*') {
                self.mention(tokens, start, module, NamePath::of_use(names, absolute));
                self.mentions.last_mut().expect("just made").glob = true;
                return at + 1;
            }
            let Some(name) = tokens.word(at) else {
                return at + 1;
            };
            if name != "self" || names.is_empty() {
                names.push(name);
            }
            at += 1;
            if !tokens.is_double_colon(at) {
                break;
            }
            at += 2;
        }
        self.mention(tokens, start, module, NamePath::of_use(names, absolute));
        // The new name is none of anybody else's.
        if tokens.is_word(at, "as") { at + 2 } else { at }
    }

    /// A path in code, if one begins here.
    fn code_path(&mut self, tokens: &Tokens, start: usize, module: ModuleId) -> usize {
        let absolute = tokens.is_double_colon(start);
        let mut at = if absolute { start + 2 } else { start };
        let mut names = Vec::new();
        while let Some(name) = tokens.word(at) {
            names.push(name);
            at += 1;
            if !(tokens.is_double_colon(at) && tokens.word(at + 2).is_some()) {
                break;
            }
            at += 2;
        }
        if names.is_empty() {
            return start + if absolute { 2 } else { 1 };
        }
        let is_macro =
            tokens.is_punct(at, '!') && tokens.0.get(at + 1).is_some_and(is_group_or_word);
        let stands_alone = names.len() == 1 && !absolute;
        // `$name::x` is whatever a macro was given; `<T>::x` and `T::<U>::x` are of a type.
        let of_other = (tokens.is_punct_before(start, '$') && names[0] != "crate")
            || (absolute && tokens.closes_type(start));
        if !of_other && (!stands_alone || is_macro) {
            self.mention(tokens, start, module, NamePath::of_code(names, absolute));
            self.mentions.last_mut().expect("just made").bare_macro = stands_alone;
        }
        at
    }

    fn mention(&mut self, tokens: &Tokens, at: usize, module: ModuleId, path: NamePath) {
        self.mentions.push(Mention {
            module,
            line: tokens.line(at),
            path,
            glob: false,
            bare_macro: false,
        });
    }
}

fn is_group_or_word(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(_) | TokenTree::Ident(_))
}

/// The tokens of a group, without those that the product lacks.
struct Tokens(Vec<TokenTree>);

impl Tokens {
    fn of(tokens: TokenStream, hidden: &[Range<usize>]) -> Self {
        let seen = |token: &TokenTree| {
            let start = token.span().byte_range().start;
            !hidden.iter().any(|passage| passage.contains(&start))
        };
        Tokens(tokens.into_iter().filter(seen).collect())
    }

    fn line(&self, at: usize) -> usize {
        self.0.get(at).map_or(0, |token| token.span().start().line)
    }

    fn word(&self, at: usize) -> Option<String> {
        match self.0.get(at)? {
            TokenTree::Ident(word) => Some(word.to_string().trim_start_matches("r#").to_owned()),
            _ => None,
        }
    }

    /// A raw identifier is no keyword.
    fn is_word(&self, at: usize, keyword: &str) -> bool {
        matches!(self.0.get(at), Some(TokenTree::Ident(word)) if word == keyword)
    }

    fn is_punct(&self, at: usize, sign: char) -> bool {
        matches!(self.0.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
    }

    fn is_punct_before(&self, at: usize, sign: char) -> bool {
        at > 0 && self.is_punct(at - 1, sign)
    }

    fn is_double_colon(&self, at: usize) -> bool {
        let joined = matches!(self.0.get(at), Some(TokenTree::Punct(punct)) if punct.spacing() == Spacing::Joint);
        joined && self.is_punct(at, ':') && self.is_punct(at + 1, ':')
    }

    /// `(crate)`, `(super)`, `(in path)`.
    fn is_scope(&self, at: usize) -> bool {
        let Some(TokenTree::Group(group)) = self.0.get(at) else {
            return false;
        };
        let inner: Vec<_> = group.stream().into_iter().collect();
        matches!(&inner[..], [TokenTree::Ident(_)])
            || matches!(&inner[..], [TokenTree::Ident(word), ..] if word == "in")
    }

    /// Whether a `>` in front is the end of a type, and not of an arrow.
    fn closes_type(&self, at: usize) -> bool {
        self.is_punct_before(at, '>')
            && !(at > 1 && (self.is_punct(at - 2, '-') || self.is_punct(at - 2, '=')))
    }
}
