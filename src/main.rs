//! The binary: hands the command line to the library and its exit code to the system.

use std::process::ExitCode;

fn main() -> ExitCode {
    onlynew::cli::main()
}
