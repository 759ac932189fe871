//! The annotated function. Its signature is parsed; its body remains as written.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{
    Attribute, FnArg, GenericArgument, GenericParam, LitStr, Pat, PathArguments, ReturnType,
    Signature, Token, Type, TypeParamBound, Visibility, token,
};

use crate::errors::Errors;
use crate::template::Scope;

pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) inner_attrs: Vec<Attribute>,
    /// The tokens between the braces, without the inner attributes.
    pub(crate) statements: TokenStream,
    /// The position of the body's braces.
    pub(crate) braces: Span,
    pub(crate) form: FunctionForm,
}

pub(crate) enum FunctionForm {
    /// `async fn`
    Async,
    /// An `async fn` as rewritten by `#[async_trait]`, see [`Boxed`].
    Boxed(Box<Boxed>),
}

/// `fn f(..) -> Pin<Box<dyn Future<Output = T> + ..>> { before; Box::pin(async move { .. }) }`
pub(crate) struct Boxed {
    pub(crate) output: Type,
    /// The body up to the argument of `Box::pin`.
    pub(crate) before: TokenStream,
    /// The position of the argument's parentheses.
    pub(crate) parens: Span,
    /// `async move`
    pub(crate) keywords: TokenStream,
    pub(crate) statements: TokenStream,
    pub(crate) braces: Span,
}

impl Function {
    /// Returns `None` if there is no signature to check the key against.
    pub(crate) fn parse(item: TokenStream, errors: &mut Errors) -> Option<Function> {
        match syn::parse2::<Parsed>(item) {
            Ok(parsed) => parsed.into_function(errors),
            Err(error) => {
                errors.push(error);
                None
            }
        }
    }

    /// Returns true if a value of the key may have a generic type. The generics of an `impl` around
    /// a method are unknown here.
    pub(crate) fn may_be_generic(&self) -> bool {
        let has_type = self.sig.generics.type_params().next().is_some();
        let has_receiver = self.sig.receiver().is_some();
        let inputs = self.sig.inputs.to_token_stream().to_string();
        let has_impl = inputs.split_whitespace().any(|word| word == "impl");
        has_type || has_receiver || has_impl
    }

    /// Returns the names that the key may mention.
    pub(crate) fn scope(&self) -> Scope {
        let mut names = Vec::new();
        let mut patterns_are_hidden = false;
        for input in &self.sig.inputs {
            if let FnArg::Typed(parameter) = input {
                bound_names(&parameter.pat, &mut names);
            }
        }
        if matches!(self.form, FunctionForm::Boxed(_)) {
            names.retain(|name| {
                let is_generated = is_generated_name(name);
                patterns_are_hidden |= is_generated;
                !is_generated
            });
        }
        let mut hidden = Vec::new();
        if patterns_are_hidden && let FunctionForm::Boxed(boxed) = &self.form {
            hidden_names(&boxed.statements, &mut hidden);
        }
        for parameter in &self.sig.generics.params {
            if let GenericParam::Const(constant) = parameter {
                names.push(constant.ident.clone());
            }
        }
        Scope {
            function: self.sig.ident.clone(),
            names,
            receiver: self.sig.inputs.first().and_then(|input| match input {
                FnArg::Receiver(receiver) => Some(receiver.self_token),
                FnArg::Typed(_) => None,
            }),
            patterns_are_hidden,
            hidden,
        }
    }

    /// Returns the names that the body owns.
    pub(crate) fn parameters(&self) -> Vec<String> {
        let scope = self.scope();
        let is_constant = |name: &Ident| {
            let mut generics = self.sig.generics.const_params();
            generics.any(|constant| constant.ident == *name)
        };
        let names = scope.names.iter().chain(&scope.hidden);
        let names = names.filter(|name| !is_constant(name));
        let receiver = scope.receiver.map(|_| "self".to_owned());
        names
            .map(|name| name.unraw().to_string())
            .chain(receiver)
            .collect()
    }

    /// Returns the type of the body's value, or `None` for an implicit `()`.
    pub(crate) fn output(&self) -> Option<&Type> {
        match (&self.form, &self.sig.output) {
            (FunctionForm::Boxed(boxed), _) => Some(&boxed.output),
            (FunctionForm::Async, ReturnType::Type(_, output)) => Some(output),
            (FunctionForm::Async, ReturnType::Default) => None,
        }
    }
}

/// A function, parsed only as far as needed.
struct Parsed {
    attrs: Vec<Attribute>,
    vis: Visibility,
    sig: Signature,
    /// `None` for `fn f();`
    body: Option<(Span, Vec<Attribute>, TokenStream)>,
}

impl Parse for Parsed {
    fn parse(input: ParseStream<'_>) -> syn::Result<Parsed> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse::<Visibility>()?;
        if let Some((what, remedy)) = other_item(input) {
            return Err(syn::Error::new(
                input.span(),
                format!("`#[distributed_lock]` locks an `async fn`, not {what}: {remedy}"),
            ));
        }
        let sig = input.parse::<Signature>()?;
        let body = if input.parse::<Option<Token![;]>>()?.is_some() {
            None
        } else {
            let inside;
            // Also accepts a body that a `macro_rules!` passes on as a fragment.
            let braces = syn::braced!(inside in input).span.join();
            let inner_attrs = inside.call(Attribute::parse_inner)?;
            let statements = inside.parse::<TokenStream>()?;
            Some((braces, inner_attrs, statements))
        };
        Ok(Parsed {
            attrs,
            vis,
            sig,
            body,
        })
    }
}

fn other_item(input: ParseStream<'_>) -> Option<(&'static str, &'static str)> {
    const ON_METHODS: &str = "write it on each method that takes the lock";
    const ON_FUNCTIONS: &str = "write it on the function that takes the lock";
    let ahead = input.fork();
    let _ = ahead.parse::<Option<Token![unsafe]>>();
    let word = ahead.call(Ident::parse_any).ok()?.to_string();
    Some(match word.as_str() {
        "impl" => ("an impl block", ON_METHODS),
        "trait" => (
            "a trait",
            "write it on the methods that implement it, or on a default method",
        ),
        "mod" => ("a module", ON_FUNCTIONS),
        "struct" => ("a struct", ON_FUNCTIONS),
        "enum" => ("an enum", ON_FUNCTIONS),
        "union" => ("a union", ON_FUNCTIONS),
        "type" => ("a type alias", ON_FUNCTIONS),
        "use" => ("an import", ON_FUNCTIONS),
        "static" => ("a static", ON_FUNCTIONS),
        "let" => ("a statement", ON_FUNCTIONS),
        "macro_rules" => ("a macro", ON_FUNCTIONS),
        "const" if ahead.peek(Token![fn]) || ahead.peek(Token![async]) => return None,
        "const" if ahead.peek(Token![unsafe]) || ahead.peek(Token![extern]) => return None,
        "const" => ("a constant", ON_FUNCTIONS),
        "extern" if ahead.peek(Token![crate]) => ("an import", ON_FUNCTIONS),
        "extern" if is_block_of_declarations(&ahead) => ("a block of declarations", ON_FUNCTIONS),
        _ => return None,
    })
}

/// Returns true after the `extern` of `extern "C" { ... }`.
fn is_block_of_declarations(rest: ParseStream<'_>) -> bool {
    let ahead = rest.fork();
    let _ = ahead.parse::<Option<LitStr>>();
    ahead.peek(token::Brace)
}

impl Parsed {
    fn into_function(self, errors: &mut Errors) -> Option<Function> {
        let name = &self.sig.ident;
        let Some((braces, inner_attrs, statements)) = self.body else {
            errors.push_at(
                name.span(),
                format!(
                    "`{name}` has no body to lock: write `#[distributed_lock(...)]` on the \
                     methods that implement it, or give it a default body"
                ),
            );
            return None;
        };
        let form = if self.sig.asyncness.is_some() {
            FunctionForm::Async
        } else if let Some(boxed) = Boxed::recognize(&self.sig.output, &statements) {
            FunctionForm::Boxed(Box::new(boxed))
        } else {
            not_async(&self.sig, errors);
            // Sufficient to check the key.
            FunctionForm::Async
        };
        Some(Function {
            attrs: self.attrs,
            vis: self.vis,
            sig: self.sig,
            inner_attrs,
            statements,
            braces,
            form,
        })
    }
}

fn not_async(sig: &Signature, errors: &mut Errors) {
    let name = &sig.ident;
    if let Some(constness) = &sig.constness {
        errors.push_spanned(
            constness,
            format!("a `const fn` cannot wait for a lock: write `async fn {name}`"),
        );
    } else if let Some((output, value)) = returned_future(&sig.output) {
        let arrow = value.map_or_else(
            || "write `async fn` and return what the future returns".to_owned(),
            |value| format!("write `async fn {name}(..) -> {}`", readable(&value)),
        );
        errors.push_spanned(
            output,
            format!(
                "`{name}` returns a future, and the lock would be gone before it runs: {arrow}"
            ),
        );
    } else {
        errors.push_at(
            sig.fn_token.span,
            format!(
                "`#[distributed_lock]` needs an `async fn`: write `async fn {name}`; if it is an \
                 `async fn` under `#[tokio::main]` or `#[tokio::test]`, write \
                 `#[distributed_lock(...)]` above that attribute"
            ),
        );
    }
}

/// Returns the future that a plain `fn` returns, and its output if the type shows it.
fn returned_future(output: &ReturnType) -> Option<(&Type, Option<Type>)> {
    let ReturnType::Type(_, output) = output else {
        return None;
    };
    let output = without_groups(output);
    if let Some(value) = boxed_output(output) {
        return Some((output, Some(value.clone())));
    }
    match output {
        Type::ImplTrait(opaque) => {
            let arguments = future_arguments(&opaque.bounds)?;
            Some((output, output_type(arguments).cloned()))
        }
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let named = ["BoxFuture", "LocalBoxFuture"]
                .iter()
                .any(|n| last.ident == n);
            named.then(|| {
                let value = type_arguments(&last.arguments).next().cloned();
                (output, value)
            })
        }
        _ => None,
    }
}

impl Boxed {
    fn recognize(output: &ReturnType, statements: &TokenStream) -> Option<Boxed> {
        let ReturnType::Type(_, output) = output else {
            return None;
        };
        let output = boxed_output(output)?.clone();
        let mut body: Vec<TokenTree> = statements.clone().into_iter().collect();
        let TokenTree::Group(argument) = body.pop()? else {
            return None;
        };
        if argument.delimiter() != Delimiter::Parenthesis || !ends_with_box_pin(&body) {
            return None;
        }
        let mut tokens: Vec<TokenTree> = argument.stream().into_iter().collect();
        if matches!(tokens.last(), Some(TokenTree::Punct(comma)) if comma.as_char() == ',') {
            tokens.pop();
        }
        let TokenTree::Group(block) = tokens.pop()? else {
            return None;
        };
        let keywords: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        if block.delimiter() != Delimiter::Brace || keywords != ["async", "move"] {
            return None;
        }
        Some(Boxed {
            output,
            before: body.into_iter().collect(),
            parens: argument.span(),
            keywords: tokens.into_iter().collect(),
            statements: block.stream(),
            braces: block.span(),
        })
    }
}

fn ends_with_box_pin(tokens: &[TokenTree]) -> bool {
    let path: Vec<String> = tokens
        .iter()
        .rev()
        .take(4)
        .map(ToString::to_string)
        .collect();
    path == ["pin", ":", ":", "Box"]
}

/// Returns the `T` of `Pin<Box<dyn Future<Output = T> + ..>>`.
fn boxed_output(output: &Type) -> Option<&Type> {
    let pinned = only_argument(output, "Pin")?;
    let Type::TraitObject(future) = without_groups(only_argument(pinned, "Box")?) else {
        return None;
    };
    output_type(future_arguments(&future.bounds)?)
}

/// Returns the type argument of `name<..>`.
fn only_argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = without_groups(ty) else {
        return None;
    };
    let last = path.path.segments.last()?;
    if last.ident != name {
        return None;
    }
    type_arguments(&last.arguments).next()
}

fn type_arguments(arguments: &PathArguments) -> impl Iterator<Item = &Type> {
    let arguments = match arguments {
        PathArguments::AngleBracketed(angle) => Some(angle.args.iter()),
        _ => None,
    };
    arguments
        .into_iter()
        .flatten()
        .filter_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })
}

/// Returns the arguments of `Future` among the bounds.
fn future_arguments<'a>(
    bounds: impl IntoIterator<Item = &'a TypeParamBound>,
) -> Option<&'a PathArguments> {
    bounds.into_iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => {
            let last = bound.path.segments.last()?;
            (last.ident == "Future").then_some(&last.arguments)
        }
        _ => None,
    })
}

/// Returns the `T` of `<Output = T>`.
fn output_type(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(angle) = arguments else {
        return None;
    };
    angle.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(&assoc.ty),
        _ => None,
    })
}

/// Removes the invisible groups that `macro_rules!` puts around fragments.
pub(crate) fn without_groups(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            other => return other,
        };
    }
}

/// Returns a type with the usual spacing.
fn readable(ty: &Type) -> String {
    let mut text = ty.to_token_stream().to_string();
    for (spaced, tight) in [
        (" < ", "<"),
        (" <", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :: ", "::"),
        (":: ", "::"),
        ("& ", "&"),
        ("( ", "("),
        (" )", ")"),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}

/// Collects the names that a parameter's pattern brings into scope.
pub(crate) fn bound_names(pattern: &Pat, names: &mut Vec<Ident>) {
    match pattern {
        Pat::Ident(name) => {
            names.push(name.ident.clone());
            if let Some((_, inside)) = &name.subpat {
                bound_names(inside, names);
            }
        }
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(|p| bound_names(p, names)),
        Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(|p| bound_names(p, names)),
        Pat::Slice(slice) => slice.elems.iter().for_each(|p| bound_names(p, names)),
        Pat::Struct(fields) => fields
            .fields
            .iter()
            .for_each(|f| bound_names(&f.pat, names)),
        Pat::Reference(reference) => bound_names(&reference.pat, names),
        Pat::Paren(paren) => bound_names(&paren.pat, names),
        Pat::Type(typed) => bound_names(&typed.pat, names),
        // All alternatives bind the same names.
        Pat::Or(or) => or.cases.iter().take(1).for_each(|p| bound_names(p, names)),
        _ => {}
    }
}

/// Returns true for a name that `#[async_trait]` gives to a parameter with a pattern.
fn is_generated_name(name: &Ident) -> bool {
    name.to_string().starts_with("__arg")
}

/// Collects the names bound by `let PATTERN = { __arg1 };`, however deep `#[async_trait]` put it.
fn hidden_names(statements: &TokenStream, names: &mut Vec<Ident>) {
    let tokens: Vec<TokenTree> = statements.clone().into_iter().collect();
    for token in &tokens {
        if let TokenTree::Group(block) = token {
            hidden_names(&block.stream(), names);
        }
    }
    let is = |token: &TokenTree, c: char| matches!(token, TokenTree::Punct(p) if p.as_char() == c);
    for statement in tokens.split(|token| is(token, ';')) {
        let start = statement
            .iter()
            .position(|token| token.to_string() == "let");
        let equals = statement.iter().position(|token| is(token, '='));
        if let (Some(start), Some(equals)) = (start, equals)
            && start < equals
            && mentions_generated_name(&statement[equals..])
        {
            let pattern = statement[start + 1..equals].iter().cloned().collect();
            if let Ok(pattern) = Pat::parse_single.parse2(pattern) {
                bound_names(&pattern, names);
            }
        }
    }
    names.retain(|name| !is_generated_name(name));
}

fn mentions_generated_name(tokens: &[TokenTree]) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Ident(name) => is_generated_name(name),
        TokenTree::Group(group) => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            mentions_generated_name(&inside)
        }
        _ => false,
    })
}
