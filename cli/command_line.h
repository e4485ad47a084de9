#pragma once

#include <CLI/CLI.hpp>
#include <optional>

namespace macaw::cli {

// Reads a program's command line into what `app` is bound to. Returns nullopt if the program is to
// go on; else the exit code that it ends with now: --help or --version was printed, or the error is
// on standard error, as one line of `program`, which names the word that is wrong.
std::optional<int> ParseCommandLine(CLI::App& app, const char* program, int argc, char** argv);

}  // namespace macaw::cli
