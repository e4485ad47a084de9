#pragma once

#include <cstdint>
#include <string>

namespace macaw::cli {

// A file of a project that `macaw new` writes. In its name NAME, and in its text {{name}}, stand
// for the project's name.
struct TemplateFile {
  const char* name;
  const char* text;
};

enum class Language : uint8_t { kPython, kCpp };

// `macaw new NAME`: writes a complete project into `folder` ("": NAME), which must not exist.
// Returns the exit code.
int NewProject(const std::string& name, const std::string& folder, Language language);

}  // namespace macaw::cli
