//! The `ktsu` binary.

fn main() -> std::process::ExitCode {
    ktsu::cli::main()
}
