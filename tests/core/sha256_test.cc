#include "core/sha256.h"

#include <gtest/gtest.h>

#include "core/digest.h"

namespace macaw {
namespace {

// FIPS 180-4, appendix B.1, and `sha256sum /dev/null`.
TEST(Sha256, HasTheValuesOfTheStandard) {
  EXPECT_EQ(Sha256Hex(BytesOf(absl::string_view("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace macaw
