#pragma once

#include <string>

#include "cli/config/config.h"
#include "cli/config/document.h"

// One file may serve a simulation, its server and its workers. What it gives and the program that
// reads it never looks at is not refused; these notes name its tables. "": there are none.
namespace macaw::cli {

// In the file of a node: tables that the server's file decides.
std::string NoteOnServersTables(const Document& document);

// In the file of a fleet's server: tables that each node's own file decides, where they say other
// than the defaults. `config`: of the file.
std::string NoteOnNodesTables(const Config& config);

}  // namespace macaw::cli
