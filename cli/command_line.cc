#include "cli/command_line.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/process/exit.h"
#include "core/spelling.h"

namespace macaw::cli {
namespace {

// The command that the line has reached, and its words: "macaw pki".
struct Reached {
  const CLI::App* command;
  std::string words;
};

Reached ReachedBy(const CLI::App& app, const char* program) {
  Reached reached{&app, program};
  for (std::vector<CLI::App*> next = app.get_subcommands(); !next.empty();
       next = next.front()->get_subcommands()) {
    reached.command = next.front();
    absl::StrAppend(&reached.words, " ", next.front()->get_name());
  }
  return reached;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The first word of the line that nothing takes, or "".
std::string UnknownWord(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto word = std::find_if(argv + 1, argv + argc, [&unknown](const char* argument) {
    return std::find(unknown.begin(), unknown.end(), argument) != unknown.end();
  });
  return word == argv + argc ? "" : *word;
}

std::string Sentence(const CLI::ParseError& error, const Reached& reached,
                     const std::string& word) {
  const std::vector<std::string> commands = CommandNames(*reached.command);
  const bool lacks_command = reached.command->get_require_subcommand_min() > 0 &&
                             reached.command->get_subcommands().empty() && !commands.empty();
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (!lacks_command && !extra) return error.what();
  if (word.empty()) {
    return lacks_command ? absl::StrCat("a command is missing after \"", reached.words,
                                        "\": ", absl::StrJoin(commands, ", "))
                         : error.what();
  }
  const bool option = word.front() == '-';
  const std::string near = NearestWord(word, option ? OptionNames(*reached.command) : commands);
  return absl::StrCat("\"", word, "\" is no ",
                      option             ? "option"
                      : commands.empty() ? "argument"
                                         : "command",
                      " of \"", reached.words, "\"",
                      near.empty() ? "" : absl::StrCat(": did you mean ", near, "?"));
}

}  // namespace

std::optional<int> ParseCommandLine(CLI::App& app, const char* program, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& asked) {  // --help or --version
    app.exit(asked);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    const Reached reached = ReachedBy(app, program);
    PrintError(program, absl::StrCat(Sentence(error, reached, UnknownWord(app, argc, argv)), " (",
                                     reached.words, " --help)"));
    return kExitUsage;
  }
}

}  // namespace macaw::cli
