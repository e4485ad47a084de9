#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/csv_text.h"
#include "data/options.h"

namespace macaw::data {

// What stands between the cells of a table: what data.separator says, or what is found in the text.
inline char SeparatorOf(const std::string& given, absl::string_view text) {
  if (given.empty()) return FindSeparator(text);
  return given == kTabSeparator ? '\t' : given.front();
}

}  // namespace macaw::data
