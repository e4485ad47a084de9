#include "core/digest.h"

#include <gtest/gtest.h>

namespace macaw {
namespace {

// RFC 7693's hash with a 32-byte result, of the empty string and of "abc" (values of b2sum -l 256).
TEST(Digest, IsBlake2b256) {
  EXPECT_EQ(DigestOf("").Hex(), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(DigestOf("abc").Hex(),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Digest, ConvertsToHexAndBack) {
  const Digest digest = DigestOf("macaw");
  EXPECT_EQ(*Digest::FromHex(digest.Hex()), digest);
  EXPECT_FALSE(Digest::FromHex("12").ok());
  EXPECT_FALSE(Digest::FromHex(std::string(64, 'z')).ok());
}

TEST(Digester, KeepsFieldsApart) {
  EXPECT_NE(Digester().Add("ab").Add("c").Finish(), Digester().Add("a").Add("bc").Finish());
}

}  // namespace
}  // namespace macaw
