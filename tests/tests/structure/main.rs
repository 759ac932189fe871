//! Checks of the repository itself: imports between the folders of the library, the runbook, links
//! to the project, the commands and code of the documents, and the path of an uncontended call.
//! They read files only, so they also cover code that no test runs.

mod documents;
mod files;
mod imports;
mod links;
mod log_lines;
mod migration;
mod path;
mod runbook;
mod source;
