//! Parts of product types and functions that only some builds have.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Field, FieldValue, ImplItem, Item, Macro, TraitItem, Variant};

use crate::library::Sources;
use crate::library::builds::{PUBLISHED, attributes_of, lacks};
use crate::package::SABOTAGED;

/// Conditions on tests or saboteurs in product code. A whole `mod` may have one, and a `use` one on tests; in the file that
/// knows of saboteurs, items and statements may have one on them. Fields, variants and methods never may.
pub(crate) fn conditional(sources: &Sources) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (path, text) in sources {
        let file: syn::File = syn::parse_str(text)
            .unwrap_or_else(|error| panic!("{path}:{}: {error}", error.span().start().line));
        // A file of tests alone is no product code.
        if lacks(PUBLISHED, &file.attrs) {
            continue;
        }
        let mut found = Conditional {
            path,
            part: Part::Item,
            mistakes: &mut mistakes,
        };
        found.visit_file(&file);
    }
    mistakes
}

/// What a condition stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Field,
    Variant,
    Method,
    Item,
    Import,
    Statement,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Field => "a field",
            Part::Variant => "a variant",
            Part::Method => "a method",
            Part::Item => "an item",
            Part::Import => "a `use`",
            Part::Statement => "a part of a function",
        }
    }
}

struct Conditional<'a> {
    path: &'a str,
    part: Part,
    mistakes: &'a mut Vec<String>,
}

impl Conditional<'_> {
    fn within(&mut self, part: Part, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.part, part);
        visit(self);
        self.part = outer;
    }

    /// Looks at a condition, however it is written.
    fn condition(&mut self, condition: &TokenStream, written: &str, line: usize) {
        let (of_tests, of_saboteurs) = (
            names(condition, &["test", "distlock_inside"]),
            names(condition, &["sabotage"]),
        );
        let is_allowed = match self.part {
            Part::Import => !of_saboteurs || self.path == SABOTAGED,
            Part::Item | Part::Statement => !of_tests && (!of_saboteurs || self.path == SABOTAGED),
            Part::Field | Part::Variant | Part::Method => !of_tests && !of_saboteurs,
        };
        if !is_allowed {
            let part = self.part.name();
            self.mistakes
                .push(format!("{}:{line} {written} on {part}", self.path));
        }
    }
}

/// Whether a condition names one of these.
fn names(condition: &TokenStream, wanted: &[&str]) -> bool {
    condition.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => names(&group.stream(), wanted),
        TokenTree::Ident(name) => wanted.iter().any(|wanted| name == wanted),
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Conditional<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let path = attribute.path();
        if (path.is_ident("cfg") || path.is_ident("cfg_attr"))
            && let Ok(list) = attribute.meta.require_list()
        {
            let written = attribute.to_token_stream().to_string().replace(' ', "");
            self.condition(&list.tokens, &written, attribute.span().start().line);
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if call.path.is_ident("cfg") {
            let written = call.to_token_stream().to_string().replace(' ', "");
            self.condition(&call.tokens, &written, call.span().start().line);
        }
        visit::visit_macro(self, call);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(block) => {
                // What is in a module of tests is not product code.
                if !lacks(PUBLISHED, &attributes_of(item))
                    && let Some((_, items)) = &block.content
                {
                    items.iter().for_each(|item| self.visit_item(item));
                }
            }
            Item::Use(_) => self.within(Part::Import, |this| visit::visit_item(this, item)),
            _ => self.within(Part::Item, |this| visit::visit_item(this, item)),
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        self.within(Part::Field, |this| visit::visit_field(this, field));
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        self.within(Part::Variant, |this| visit::visit_variant(this, variant));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        self.within(Part::Method, |this| visit::visit_impl_item(this, item));
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        self.within(Part::Method, |this| visit::visit_trait_item(this, item));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.within(Part::Statement, |this| visit::visit_block(this, block));
    }

    fn visit_field_value(&mut self, value: &'ast FieldValue) {
        self.within(Part::Field, |this| visit::visit_field_value(this, value));
    }
}
