#include "cli/commands/project.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "cli/commands/commands.h"
#include "cli/commands/plugin_template.h"
#include "cli/commands/python_template.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/shell.h"
#include "core/status.h"
#include "sdk/catalogue.h"

namespace macaw::cli {
namespace {

// A plug-in's name is that of a namespace and of a target of CMake.
constexpr absl::string_view kTaken[] = {
    "alignas",      "alignof",       "all",         "and",       "and_eq",
    "asm",          "auto",          "bitand",      "bitor",     "bool",
    "break",        "case",          "catch",       "char",      "char16_t",
    "char32_t",     "char8_t",       "class",       "clean",     "co_await",
    "co_return",    "co_yield",      "compl",       "concept",   "const",
    "const_cast",   "consteval",     "constexpr",   "constinit", "continue",
    "decltype",     "default",       "delete",      "do",        "double",
    "dynamic_cast", "else",          "enum",        "explicit",  "export",
    "extern",       "false",         "float",       "for",       "friend",
    "goto",         "help",          "if",          "inline",    "install",
    "int",          "loads",         "long",        "macaw",     "mutable",
    "namespace",    "new",           "noexcept",    "not",       "not_eq",
    "nullptr",      "operator",      "or",          "or_eq",     "package",
    "private",      "protected",     "public",      "register",  "reinterpret_cast",
    "requires",     "return",        "short",       "signed",    "sizeof",
    "static",       "static_assert", "static_cast", "std",       "struct",
    "switch",       "template",      "test",        "this",      "thread_local",
    "throw",        "trains",        "true",        "try",       "typedef",
    "typeid",       "typename",      "union",       "unsigned",  "using",
    "virtual",      "void",          "volatile",    "wchar_t",   "while",
    "xor",          "xor_eq"};

absl::Status CheckName(const std::string& name, Language language) {
  bool fits = !name.empty() && name[0] >= 'a' && name[0] <= 'z';
  for (const char c : name) {
    fits = fits && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of a project is small letters, digits and _, and begins with a "
                     "letter; got \"",
                     name, "\""));
  }
  if (language == Language::kPython) return absl::OkStatus();
  const bool rule = sdk::Catalogue::Builtins().algorithms().Find(name).ok();
  if (rule || std::ranges::find(kTaken, name) != std::end(kTaken)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a plug-in cannot be called \"", name, "\", which is ",
        rule ? "a built-in algorithm" : "a word of C++ or of CMake", ": choose another name"));
  }
  return absl::OkStatus();
}

absl::Status WriteProject(const std::string& name, const std::string& folder, Language language) {
  MACAW_RETURN_IF_ERROR(CheckName(name, language));
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(folder, error))) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " exists already: choose another folder with --out"));
  }
  MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::span<const TemplateFile> files = language == Language::kPython
                                                  ? std::span<const TemplateFile>(kPythonTemplate)
                                                  : std::span<const TemplateFile>(kPluginTemplate);
  for (const TemplateFile& file : files) {
    const std::string path =
        absl::StrCat(folder, "/", absl::StrReplaceAll(file.name, {{"NAME", name}}));
    MACAW_RETURN_IF_ERROR(
        AtomicWriteFile(path, absl::StrReplaceAll(file.text, {{"{{name}}", name}})));
    std::cout << path << "\n";
  }
  if (language == Language::kPython) {
    std::cout << "run it     cd " << ForShell(folder)
              << " && python train.py   (with the Python package macaw: README.md)\n";
  } else {
    std::cout << "build it   " << folder << "/README.md says how, and how to test and run it\n";
  }
  return absl::OkStatus();
}

}  // namespace

int NewProject(const std::string& name, const std::string& folder, Language language) {
  return Report(WriteProject(name, folder.empty() ? name : folder, language));
}

void AddNew(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("new", "Write a project of your own, complete and with tests");
  auto name = std::make_shared<std::string>(), out = std::make_shared<std::string>();
  auto python = std::make_shared<bool>(false), cpp = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "Small letters, digits and _")->required();
  command->add_option("--out,-o", *out, "The folder to make (default: NAME)");
  CLI::Option* in_python = command->add_flag(
      "--python", *python, "Own data, model and rule in Python, with tests (the default)");
  command->add_flag("--cpp", *cpp, "A plug-in: an algorithm, a model, data and tests in C++")
      ->excludes(in_python);
  command->final_callback([=, &run] {
    run = [=] { return NewProject(*name, *out, *cpp ? Language::kCpp : Language::kPython); };
  });
}

}  // namespace macaw::cli
