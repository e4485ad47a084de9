#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/codecs/codec_util.h"

namespace macaw::codecs {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Refused(const std::vector<std::string>& lines) {
  return std::string(ParseCodec(lines).status().message());
}

TEST(ParseCodec, ReadsEveryFormOfEveryCodec) {
  for (const char* line :
       {"topk 0.01", "topk 0.01 tensor", "topk 1 all", "topk .5 chunks 32768", "randomk 1e-3",
        "threshold 0.001", "qsgd 1", "qsgd 127 bucket 1024", "terngrad", "terngrad clip 2.5",
        "sign", "bits 2", "bits 8", "bf16", "f16", "  topk   0.1  all "})
    EXPECT_EQ(Refused({line}), "") << line;
}

TEST(ParseCodec, NamesTheLineAndWhatIsWrongWithIt) {
  EXPECT_THAT(
      Refused({"topk 0.1", "topq 0.1"}),
      AllOf(HasSubstr("\"topq 0.1\""), HasSubstr("did you mean 'topk'"), HasSubstr("bf16")));
  EXPECT_THAT(Refused({"topk 2"}), AllOf(HasSubstr("\"topk 2\""), HasSubstr("(0, 1]")));
  EXPECT_THAT(Refused({"topk"}), HasSubstr("is missing"));
  EXPECT_THAT(Refused({"topk 0"}), HasSubstr("not 0"));
  EXPECT_THAT(Refused({"topk nan"}), HasSubstr("not nan"));
  EXPECT_THAT(Refused({"topk 0.1 everywhere"}), HasSubstr("'everywhere'"));
  EXPECT_THAT(Refused({"topk 0.1 chunks"}), HasSubstr("is missing"));
  EXPECT_THAT(Refused({"randomk 0.1 all"}), HasSubstr("'all'"));
  EXPECT_THAT(Refused({"threshold -1"}), HasSubstr("above 0"));
  EXPECT_THAT(Refused({"threshold inf"}), HasSubstr("above 0"));
  EXPECT_THAT(Refused({"qsgd 128"}), HasSubstr("from 1 to 127"));
  EXPECT_THAT(Refused({"qsgd 4 bucket 100"}), HasSubstr("512"));
  EXPECT_THAT(Refused({"qsgd 4 bucket 700"}), HasSubstr("multiple of 512"));
  EXPECT_THAT(Refused({"terngrad clip 0"}), HasSubstr("clip"));
  EXPECT_THAT(Refused({"sign 1"}), HasSubstr("'1'"));
  EXPECT_THAT(Refused({"sign unbiased"}), HasSubstr("write \"rotate\" right in front"));
  EXPECT_THAT(Refused({"bits 1"}), HasSubstr("from 2 to 8"));
  EXPECT_THAT(Refused({"bits 4.5"}), HasSubstr("4.5"));
  EXPECT_THAT(Refused({"f16 nearest"}), HasSubstr("'nearest'"));
  EXPECT_THAT(Refused({""}), HasSubstr("there are"));
  EXPECT_THAT(Refused({}), HasSubstr("empty"));
}

TEST(ParseCodec, SaysWhatIsBiasedAndWhatIsSparse) {
  const auto bias = [](const std::vector<std::string>& lines, const CodecUse& use = {}) {
    return CodecOf(lines, use)->bias();
  };
  EXPECT_EQ(bias({"topk 0.1"}), Bias::kLarge);
  EXPECT_EQ(bias({"threshold 1"}), Bias::kLarge);
  EXPECT_EQ(bias({"sign"}), Bias::kLarge);
  EXPECT_EQ(bias({"terngrad clip 2"}), Bias::kLarge);
  EXPECT_EQ(bias({"randomk 0.1"}, {.scaled = false}), Bias::kLarge);
  EXPECT_EQ(bias({"randomk 0.1"}), Bias::kNone);
  EXPECT_EQ(bias({"qsgd 4"}), Bias::kNone);
  EXPECT_EQ(bias({"terngrad"}), Bias::kNone);
  EXPECT_EQ(bias({"bits 8"}), Bias::kNone);
  EXPECT_EQ(bias({"bf16"}), Bias::kRounding);
  EXPECT_EQ(bias({"f16"}), Bias::kRounding);
  EXPECT_EQ(bias({"randomk 0.1", "bits 8"}), Bias::kNone);
  EXPECT_EQ(bias({"qsgd 4", "f16"}), Bias::kRounding);
  EXPECT_EQ(bias({"f16", "topk 0.1", "bits 8"}), Bias::kLarge);
  EXPECT_TRUE(CodecOf({"topk 0.1", "bits 8"})->sparse());
  EXPECT_FALSE(CodecOf({"bits 8"})->sparse());
  EXPECT_EQ(bias({"sign unbiased"}, {.rotated = true}), Bias::kNone);
}

}  // namespace
}  // namespace macaw::codecs
