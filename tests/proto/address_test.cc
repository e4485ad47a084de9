#include "proto/wire/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/wire/remote.h"

namespace macaw::wire {
namespace {

TEST(Address, IsLoopbackOnlyWhereItCannotBeAnotherHost) {
  for (const char* text :
       {"unix:/run/macaw", ":7000", "localhost:1", "127.0.0.1:1", "127.9.8.7:1", "[::1]:1"}) {
    EXPECT_TRUE(ParseAddress(text)->IsLoopback()) << text;
  }
  for (const char* text : {"127.evil.test:1", "127.1:1", "0.0.0.0:1", "10.0.0.1:1", "[::]:1",
                           "127.0.0.1.nip.test:1"}) {
    EXPECT_FALSE(ParseAddress(text)->IsLoopback()) << text;
  }
}

TEST(Address, ANameThatLooksLikeLoopbackIsNotDialledInPlainText) {
  EXPECT_THAT(Dial({.server = "127.evil.test:80"}).status().ToString(),
              testing::HasSubstr("not a loopback address"));
}

}  // namespace
}  // namespace macaw::wire
