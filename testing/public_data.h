#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/digest.h"
#include "data/source_file.h"

namespace macaw::testing_support {

// The path of a file of tests/data/public (NOTE.md there says what it is).
inline std::string PublicData(const std::string& name) {
  return std::string(MACAW_SOURCE_DIR "/tests/data/public/") + name;
}

// The unpacked text of such a file. A missing file fails the test.
inline std::string PublicText(const std::string& name) {
  Digester ignored;
  const auto text = data::ReadSource(PublicData(name), ignored);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

}  // namespace macaw::testing_support
