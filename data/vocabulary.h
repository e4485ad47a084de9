#pragma once

#include <cstdint>

namespace macaw::data {

// Characters as tokens, the same for every file and node: 1 is the line break, 2 … 96 are the
// printable ASCII characters from the blank on, 0 is padding and any other byte.
constexpr int32_t kCharacters = 97;

constexpr int32_t TokenOf(char character) {
  if (character == '\n') return 1;
  const bool printable = character >= ' ' && character <= '~';
  return printable ? character - ' ' + 2 : 0;
}

}  // namespace macaw::data
