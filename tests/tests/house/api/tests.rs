//! The lines of a small library, and of code that is hard to write on one line.

use quote::quote;

use crate::api::lines::tidy;
use crate::api::{HEADING, difference, interface};
use crate::library::made_up;
use crate::library::modules::Library;

fn lines_of(files: &[(&str, &str)]) -> Vec<String> {
    let macros = "#[proc_macro_attribute] pub fn locked(a: TokenStream, b: TokenStream) -> TokenStream { b }";
    let macros = Library::read(&made_up(&[("lib.rs", macros)]));
    let text = interface(&Library::read(&made_up(files)), &macros);
    let lines = text
        .strip_prefix(HEADING)
        .expect("a heading")
        .lines()
        .map(str::to_owned);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    assert_eq!(
        (&*lines[0], &*lines[lines.len() - 1]),
        ("[distlock]", "attribute locked")
    );
    lines[1..lines.len() - 2].to_vec()
}

/// The lines of what one file defines, all of it exported.
fn lines_of_file(code: &str, names: &str) -> Vec<String> {
    lines_of(&[
        ("lib.rs", &format!("mod a; pub use a::{{{names}}};")),
        ("a.rs", code),
    ])
}

#[test]
fn types_show_what_is_public_of_them() {
    let code = "
        /// Documentation is no part of it.
        #[derive(Clone, Debug)]
        #[must_use = \"why is documentation\"]
        pub struct Guard<'a, T: Clone = u8> where T: 'a { pub key: &'a str, secret: T, #[cfg(test)] pub seen: u8, }
        pub struct Token(pub u64, u8);
        pub struct Open { pub all: (), }
        #[derive(thiserror::Error)]
        #[non_exhaustive]
        pub enum Error { Io(#[from] std::io::Error), #[non_exhaustive] Busy { waited: Duration, key: String }, Other = 3 }
        struct Inside { pub nothing: u8 }
    ";
    assert_eq!(
        lines_of_file(code, "Guard, Token, Open, Error as Failure"),
        [
            "#[non_exhaustive] enum Failure",
            "#[non_exhaustive] variant Failure::Busy { key: String, waited: Duration }",
            "variant Failure::Io(std::io::Error)",
            "variant Failure::Other = 3",
            "impl Display for Failure",
            "impl Error for Failure",
            "impl From<std::io::Error> for Failure",
            "#[must_use] struct Guard<'a, T: Clone = u8> where T: 'a { .. }",
            "field Guard::key: &'a str",
            "impl Clone for Guard",
            "impl Debug for Guard",
            "struct Open",
            "field Open::all: ()",
            "struct Token { .. }",
            "field Token::0: u64",
        ]
    );
}

#[test]
fn functions_and_traits_show_what_callers_and_implementers_write() {
    let code = "
        #[must_use]
        pub const fn get(mut self_: u64, (a, b): (u8, u8),) -> Option<&'static str> { None }
        pub async unsafe fn run<'a, F: Future>(key: impl Into<String>, body: F) -> Result<F::Output, Error>
        where
            F: Send + 'a,
        { body }
        pub trait Store: Send + Sync {
            type Lock: Clone;
            const MAX: usize = 3;
            fn take(&mut self, key: &str) -> Self::Lock;
            fn name(&self) -> &str { \"\" }
            #[doc(hidden)] fn inner(&self);
        }
        pub type Answer<T> = Result<T, Error>;
        pub const LONGEST: Duration = Duration::ZERO;
        impl Store for () { type Lock = u8; fn take(&mut self, key: &str) -> u8 { 0 } }
    ";
    assert_eq!(
        lines_of_file(code, "get, run, Store, Answer, LONGEST"),
        [
            "type Answer<T> = Result<T, Error>",
            "const LONGEST: Duration",
            "trait Store: Send + Sync",
            "provided const Store::MAX: usize",
            "provided fn Store::name(&self) -> &str",
            "required fn Store::take(&mut self, key: &str) -> Self::Lock",
            "required type Store::Lock: Clone",
            "impl Store for () { type Lock = u8 }",
            "#[must_use] const fn get(self_: u64, _: (u8, u8)) -> Option<&'static str>",
            "async unsafe fn run<'a, F: Future>(key: impl Into<String>, body: F) -> Result<F::Output, Error> where F: Send + 'a",
        ]
    );
}

#[test]
fn impls_are_found_wherever_they_stand() {
    let lines = lines_of(&[
        ("lib.rs", "mod manager; mod lock; mod inside; pub use manager::Manager; pub use lock::{Lock, Lockable};"),
        ("manager.rs", "pub struct Manager; pub(crate) struct Engine;"),
        (
            "lock.rs",
            "use std::fmt; use crate::manager::Manager;
             pub struct Lock<T>(T);
             pub trait Lockable {}
             impl Manager { pub async fn lock(&self) -> Lock<u8> { Lock(0) } pub(crate) fn engine(&self) {} fn own(&self) {} }
             impl<T: Clone> Lock<T> { pub fn take(mut self) -> T { self.0 } pub const MAX: u8 = 1; #[cfg(test)] pub fn seen(&self) {} }
             impl fmt::Debug for crate::manager::Manager { fn fmt(&self) {} }
             impl<'a> From<&'a str> for Lock<&'a str> { fn from(text: &'a str) -> Self { Lock(text) } }
             impl std::ops::Deref for Manager { type Target = u8; fn deref(&self) -> &u8 { &0 } }
             impl<T: AsRef<str> + ?Sized> Lockable for &T {}
             #[doc(hidden)] impl PartialEq for Manager {}
             #[cfg(sabotage)] impl Eq for Manager {}",
        ),
        (
            "inside.rs",
            "use crate::manager::{Engine, Manager}; pub trait Sealed {}
             impl Sealed for Manager {} impl Clone for Engine {} impl crate::lock::Lockable for Engine {}
             impl Drop for Manager { fn drop(&mut self) {} } impl Engine { pub fn run(&self) {} }
             #[cfg(test)] mod tests { impl Ord for super::Manager {} }",
        ),
    ]);
    assert_eq!(
        lines,
        [
            "struct Lock<T> { .. }",
            "impl<T: Clone> const <Lock<T>>::MAX: u8",
            "impl<T: Clone> fn <Lock<T>>::take(self) -> T",
            "impl<'a> From<&'a str> for Lock<&'a str>",
            "trait Lockable",
            "impl<T: AsRef<str> + ?Sized> Lockable for &T",
            "struct Manager",
            "async fn Manager::lock(&self) -> Lock<u8>",
            "impl Debug for Manager",
            "impl Deref for Manager { type Target = u8 }",
            "impl Drop for Manager",
        ]
    );
}

#[test]
fn only_what_is_exported_is_shown() {
    let lines = lines_of(&[
        (
            "lib.rs",
            "mod a; pub mod b; #[doc(hidden)] pub mod private; pub(crate) use a::Crate;
             #[cfg(feature = \"macros\")] pub use distlock_macros::locked;
             pub use a::{Thing, inner}; #[doc(hidden)] pub use a::Hidden; #[cfg(test)] pub use a::OfTests;
             pub use std::sync::Arc as Shared; pub fn at_the_top() {}",
        ),
        (
            "a.rs",
            "#[doc(hidden)] #[macro_export] macro_rules! __cry { () => {} }
             pub struct Thing; pub struct Crate; pub struct Hidden; pub struct OfTests; pub struct Unmentioned;
             pub mod inner { pub struct Deep; pub(super) struct Not; }
             #[macro_export] macro_rules! shout { () => {} }
             macro_rules! whisper { () => {} }",
        ),
        ("b.rs", "pub fn of_b(_: u8) {} pub use crate::__cry as cry; pub use crate::a::Thing as Renamed; #[cfg(feature = \"more\")] pub fn more() {}"),
        ("private.rs", "pub fn secret() {}"),
    ]);
    assert_eq!(
        lines,
        [
            "use std::sync::Arc as Shared",
            "struct Thing",
            "fn at_the_top()",
            "struct b::Renamed",
            "macro b::cry!",
            "#[cfg(feature = \"more\")] fn b::more()",
            "fn b::of_b(_: u8)",
            "struct inner::Deep",
            "attribute locked",
            "macro shout!",
        ]
    );
}

#[test]
fn code_on_one_line_looks_as_it_is_written_by_hand() {
    for code in [
        "Option<Result<Vec<u8>, &'static str>>",
        "fn(&mut Context<'_>, u8) -> Poll<()>",
        "impl Fn(&str) -> Option<u8> + Send + 'static",
        "Pin<Box<dyn Future<Output = T> + Send + 'a>>",
        "<T as Iterator>::Item",
        "[u8; 32]",
        "(u8, &[&str])",
        "where T: Clone + ?Sized, U: Into<String>",
        "impl Future<Output = F::Output> + use<'b, F>",
        "#[cfg(feature = \"macros\")]",
        "for<'a> fn(&'a T) -> &'a U",
        "*const u8",
        "&'a mut dyn Any",
        "crate::a::B<{ N }>",
        "!",
    ] {
        let tokens: proc_macro2::TokenStream = code.parse().expect("tokens");
        assert_eq!(tidy(&tokens), code);
    }
    assert_eq!(tidy(&quote!(Result<A, B,>)), "Result<A, B>");
}

#[test]
fn a_difference_shows_what_went_and_what_came() {
    let told = difference::between(
        "one\ntwo\nthree\nfour\n",
        "one\nthree\nthree and a half\nfour\nfive\n",
    );
    assert_eq!(told, "- two\n+ three and a half\n+ five\n");
    assert!(difference::between("one\ntwo\n", "two\none\n").contains("order"));
}
