#include "identity/invite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace macaw::identity {
namespace {

using testing::HasSubstr;

Invite AnInvite() {
  Invite invite;
  for (size_t i = 0; i < invite.secret.size(); ++i) {
    invite.secret[i] = static_cast<uint8_t>(7 * i + 1);
    invite.pin[i] = static_cast<uint8_t>(255 - 3 * i);
  }
  return invite;
}

TEST(Invite, IsTheSameAfterItsCodeWasTypedInAnyCaseAndWithoutDashes) {
  const Invite invite = AnInvite();
  const std::string code = invite.Code();
  EXPECT_THAT(code, testing::StartsWith("MACAW-"));
  EXPECT_EQ(code.find_first_of("ILOU"), std::string::npos);
  for (const std::string& typed :
       {code, absl::AsciiStrToLower(code), absl::StrReplaceAll(code, {{"-", ""}}),
        absl::StrReplaceAll(code, {{"-", " "}}), "\t" + code + "\n",
        // People mistake these for each other.
        absl::StrReplaceAll(code.substr(6), {{"1", "l"}, {"0", "o"}}).insert(0, "MACAW")}) {
    const auto read = Invite::FromCode(typed);
    ASSERT_TRUE(read.ok()) << typed << ": " << read.status();
    EXPECT_EQ(read->secret, invite.secret);
    EXPECT_EQ(read->pin, invite.pin);
  }
}

TEST(Invite, NoticesEachLetterThatIsMistyped) {
  const std::string code = AnInvite().Code();
  int tried = 0;
  for (size_t i = 6; i < code.size(); ++i) {
    if (code[i] == '-') continue;
    std::string wrong = code;
    wrong[i] = code[i] == '7' ? '8' : '7';
    const auto read = Invite::FromCode(wrong);
    ASSERT_FALSE(read.ok()) << i;
    EXPECT_THAT(read.status().message(), HasSubstr("mistyped"));
    ++tried;
  }
  EXPECT_EQ(tried, 55);
}

TEST(Invite, SaysWhatIsWrongWithOtherText) {
  EXPECT_THAT(Invite::FromCode("").status().message(), HasSubstr("begins with MACAW-"));
  EXPECT_THAT(Invite::FromCode("MACAW-12345").status().message(), HasSubstr("not 5"));
  std::string code = AnInvite().Code();
  code.back() = '!';
  EXPECT_THAT(Invite::FromCode(code).status().message(), HasSubstr("cannot have a \"!\""));
}

}  // namespace
}  // namespace macaw::identity
