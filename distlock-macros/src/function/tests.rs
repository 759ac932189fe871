use super::*;
use quote::quote;

fn parse(item: TokenStream) -> Result<Function, Vec<String>> {
    let mut mistakes = Mistakes::default();
    let function = Function::parse(item, &mut mistakes);
    match mistakes.finish() {
        Ok(()) => Ok(function.expect("no mistake, so a function")),
        Err(errors) => Err(errors.into_iter().map(|error| error.to_string()).collect()),
    }
}

#[test]
fn every_name_in_scope_is_found() {
    let function = parse(quote! {
        async fn f<const N: usize, T>(
            &self,
            mut a: u8,
            (b, _): (u8, u8),
            [c, d @ ..]: [u8; N],
            Point { x, y: z }: Point,
            &e: &u8,
            Wrapper(g): Wrapper,
            r#type: T,
        ) {}
    });
    let scope = function.expect("a good function").scope();
    let names: Vec<String> = scope.names.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        ["a", "b", "c", "d", "x", "z", "e", "g", "r#type", "N"]
    );
    assert!(scope.receiver.is_some() && !scope.patterns_are_hidden);
}

#[test]
fn a_boxed_async_block_is_a_body() {
    let function = parse(quote! {
        fn f<'a>(&'a self, __arg1: (u8, u8), n: u8)
            -> ::core::pin::Pin<Box<dyn ::core::future::Future<Output = Vec<u8>> + Send + 'a>>
        {
            before();
            Box::pin(async move {
                let n = n;
                let (a, Some(b)) = { let __arg1 = __arg1; __arg1 };
                let c = d;
                after()
            })
        }
    });
    let function = function.expect("the shape of #[async_trait]");
    let scope = function.scope();
    assert_eq!(scope.names, ["n"]);
    assert!(scope.patterns_are_hidden);
    let hidden: Vec<String> = scope.hidden.iter().map(ToString::to_string).collect();
    assert_eq!(hidden, ["a", "b"]);
    let Form::Boxed(boxed) = function.form else {
        panic!("taken for an async fn");
    };
    assert_eq!(readable(&boxed.output), "Vec<u8>");
    assert!(boxed.statements.to_string().ends_with("after ()"));
}

#[test]
fn other_futures_are_no_body() {
    for item in [
        quote!(
            fn f() -> impl Future<Output = u8> {
                async { 1 }
            }
        ),
        quote!(
            fn f() -> BoxFuture<'static, u8> {
                Box::pin(async { 1 })
            }
        ),
        quote!(
            fn f() -> Pin<Box<dyn Future<Output = u8>>> {
                Box::pin(later())
            }
        ),
        quote!(
            fn f() -> Pin<Box<dyn Future<Output = u8>>> {
                Box::new(async move { 1 })
            }
        ),
    ] {
        let found = parse(item).err().expect("a mistake");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("write `async fn f("), "{found:?}");
    }
    assert!(
        parse(quote!(
            fn f() {}
        ))
        .err()
        .expect("a mistake")[0]
            .contains("`async fn f`")
    );
}
