#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace macaw::cli {

// Adds `macaw sweep` with its subcommand `show`. `run` becomes what is to be done.
void AddSweep(CLI::App& app, std::function<int()>& run);

}  // namespace macaw::cli
