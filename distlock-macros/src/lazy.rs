//! Return types whose code runs after the function has returned, and so without the lock.

use proc_macro2::Ident;
use syn::{
    GenericArgument, GenericParam, Generics, Path, PathArguments, Type, TypeParamBound,
    WherePredicate,
};

use crate::errors::Errors;
use crate::function::{Function, FunctionForm, without_groups};

/// Code that runs later.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lazy {
    Future,
    Stream,
    Task,
}

const TRAITS: [(&str, Lazy); 8] = [
    ("Future", Lazy::Future),
    ("FusedFuture", Lazy::Future),
    ("TryFuture", Lazy::Future),
    ("IntoFuture", Lazy::Future),
    ("Stream", Lazy::Stream),
    ("FusedStream", Lazy::Stream),
    ("TryStream", Lazy::Stream),
    ("AsyncIterator", Lazy::Stream),
];

const TYPES: [(&str, Lazy); 12] = [
    ("BoxFuture", Lazy::Future),
    ("LocalBoxFuture", Lazy::Future),
    ("BoxStream", Lazy::Stream),
    ("LocalBoxStream", Lazy::Stream),
    ("FuturesOrdered", Lazy::Stream),
    ("FuturesUnordered", Lazy::Stream),
    ("AbortOnDropHandle", Lazy::Task),
    ("JoinHandle", Lazy::Task),
    ("JoinMap", Lazy::Task),
    ("JoinSet", Lazy::Task),
    ("RemoteHandle", Lazy::Task),
    ("ScopedJoinHandle", Lazy::Task),
];

/// Reports such a type anywhere in the return type.
pub(crate) fn check(function: &Function, errors: &mut Errors) {
    // A plain `fn` has its own error.
    if function.sig.asyncness.is_none() && matches!(function.form, FunctionForm::Async) {
        return;
    }
    let generics = lazy_parameters(&function.sig.generics);
    let found = function.output().and_then(|output| find(output, &generics));
    let Some((place, lazy)) = found else { return };
    let name = &function.sig.ident;
    let (what, remedy) = match lazy {
        Lazy::Future => (
            "a future, and the lock would be gone before it runs",
            "await it in the body and return its output",
        ),
        Lazy::Stream => (
            "a stream, and the lock would be gone before it runs",
            "collect it in the body and return a `Vec`",
        ),
        Lazy::Task => (
            "a task, which would run on without the lock",
            "await it in the body and return its output",
        ),
    };
    errors.push_spanned(
        place,
        format!(
            "`{name}` returns {what}: {remedy}, or return a type of your own if it needs no lock"
        ),
    );
}

/// Returns the type parameters that are futures or streams.
fn lazy_parameters(generics: &Generics) -> Vec<(&Ident, Lazy)> {
    let mut found = Vec::new();
    for parameter in &generics.params {
        if let GenericParam::Type(parameter) = parameter {
            found.extend(of_bounds(&parameter.bounds).map(|lazy| (&parameter.ident, lazy)));
        }
    }
    let predicates = generics.where_clause.iter().flat_map(|w| &w.predicates);
    for predicate in predicates {
        if let WherePredicate::Type(predicate) = predicate
            && let Type::Path(path) = &predicate.bounded_ty
            && let Some(name) = path.path.get_ident()
        {
            found.extend(of_bounds(&predicate.bounds).map(|lazy| (name, lazy)));
        }
    }
    found
}

fn of_bounds<'a>(bounds: impl IntoIterator<Item = &'a TypeParamBound>) -> Option<Lazy> {
    bounds.into_iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => of_name(&TRAITS, &bound.path.segments.last()?.ident),
        _ => None,
    })
}

fn of_name(names: &[(&str, Lazy)], name: &Ident) -> Option<Lazy> {
    let named = names.iter().find(|(known, _)| name == known);
    named.map(|(_, lazy)| *lazy)
}

/// Returns the first lazy type, and what it is. Does not look into the types of functions.
fn find<'a>(ty: &'a Type, parameters: &[(&Ident, Lazy)]) -> Option<(&'a Type, Lazy)> {
    let find = |ty: &'a Type| find(ty, parameters);
    let ty = without_groups(ty);
    let lazy = match ty {
        Type::ImplTrait(opaque) => of_bounds(&opaque.bounds),
        Type::TraitObject(object) => of_bounds(&object.bounds),
        Type::Path(path) => {
            let last = path.path.segments.last();
            let parameter = path.path.get_ident().and_then(|name| {
                let parameter = parameters.iter().find(|(parameter, _)| *parameter == name);
                parameter.map(|(_, lazy)| *lazy)
            });
            parameter.or_else(|| of_name(&TYPES, &last?.ident))
        }
        _ => None,
    };
    if let Some(lazy) = lazy {
        return Some((ty, lazy));
    }
    match ty {
        Type::Array(array) => find(&array.elem),
        Type::ImplTrait(opaque) => paths(&opaque.bounds).flat_map(arguments).find_map(find),
        Type::Path(path) => arguments(&path.path).find_map(find),
        Type::Ptr(pointer) => find(&pointer.elem),
        Type::Reference(reference) => find(&reference.elem),
        Type::Slice(slice) => find(&slice.elem),
        Type::TraitObject(object) => paths(&object.bounds).flat_map(arguments).find_map(find),
        Type::Tuple(tuple) => tuple.elems.iter().find_map(find),
        _ => None,
    }
}

fn paths<'a>(
    bounds: impl IntoIterator<Item = &'a TypeParamBound>,
) -> impl Iterator<Item = &'a Path> {
    bounds.into_iter().filter_map(|bound| match bound {
        TypeParamBound::Trait(bound) => Some(&bound.path),
        _ => None,
    })
}

/// Returns the types in the angle brackets of a path.
fn arguments(path: &Path) -> impl Iterator<Item = &Type> {
    let arguments = path
        .segments
        .iter()
        .filter_map(|segment| match &segment.arguments {
            PathArguments::AngleBracketed(angle) => Some(&angle.args),
            _ => None,
        });
    arguments.flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        GenericArgument::AssocType(assoc) => Some(&assoc.ty),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn lazy_types_are_found_at_any_depth() {
        let mut generics: Generics = parse_quote!(<F: Send + Future, S, T: Clone>);
        generics.where_clause = Some(parse_quote!(where S: futures::Stream<Item = u8>));
        let parameters = lazy_parameters(&generics);
        let what = |ty: Type| find(&ty, &parameters).map(|(_, lazy)| lazy);
        for (ty, lazy) in [
            (
                parse_quote!(Result<BoxStream<'static, u8>, Error>),
                Lazy::Stream,
            ),
            (parse_quote!(impl Stream<Item = u8> + Send), Lazy::Stream),
            (parse_quote!(impl Send + futures::TryStream), Lazy::Stream),
            (
                parse_quote!(Pin<Box<dyn Future<Output = u8> + Send + 'a>>),
                Lazy::Future,
            ),
            (
                parse_quote!(io::Result<(u8, Option<impl IntoFuture>)>),
                Lazy::Future,
            ),
            (
                parse_quote!(&'a mut (dyn Stream<Item = u8> + Unpin)),
                Lazy::Stream,
            ),
            (parse_quote!(Box<[LocalBoxFuture<'a, u8>]>), Lazy::Future),
            (parse_quote!([tokio::task::JoinHandle<()>; 2]), Lazy::Task),
            (parse_quote!(impl Iterator<Item = JoinSet<u8>>), Lazy::Task),
            (
                parse_quote!(Sse<Box<dyn Iterator<Item = BoxFuture<'a, u8>>>>),
                Lazy::Future,
            ),
            (parse_quote!(Result<F, Error>), Lazy::Future),
            (parse_quote!(Vec<S>), Lazy::Stream),
        ] {
            assert_eq!(what(ty), Some(lazy));
        }
        for ty in [
            parse_quote!(Result<Vec<T>, Box<dyn Error + Send>>),
            parse_quote!(impl Iterator<Item = u8>),
            parse_quote!(TcpStream),
            parse_quote!(Stream),
            parse_quote!(F::Output),
            parse_quote!(fn(u8) -> BoxFuture<'static, u8>),
            parse_quote!(Box<dyn Fn(u8) -> BoxFuture<'static, u8>>),
        ] {
            assert_eq!(what(ty), None);
        }
    }
}
