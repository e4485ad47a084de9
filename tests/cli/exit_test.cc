#include "cli/process/exit.h"

#include <gtest/gtest.h>

namespace macaw::cli {
namespace {

TEST(WouldEndTheSame, IsAsTheProgramMeansTheError) {
  const absl::Status both[] = {absl::InvalidArgumentError(""), absl::NotFoundError(""),
                               absl::FailedPreconditionError(""), absl::DataLossError(""),
                               absl::UnimplementedError("")};
  for (const absl::Status& status : both) {
    EXPECT_TRUE(WouldEndTheSame(status, Starts::kServer)) << status;
    EXPECT_TRUE(WouldEndTheSame(status, Starts::kWorker)) << status;
  }
  const absl::Status folder[] = {absl::AlreadyExistsError(""), absl::AbortedError(""),
                                 absl::OutOfRangeError("")};
  for (const absl::Status& status : folder) {
    EXPECT_TRUE(WouldEndTheSame(status, Starts::kServer)) << status;
    EXPECT_FALSE(WouldEndTheSame(status, Starts::kWorker)) << status;
  }
  const absl::Status refusal[] = {absl::PermissionDeniedError(""), absl::UnauthenticatedError("")};
  for (const absl::Status& status : refusal) {
    EXPECT_FALSE(WouldEndTheSame(status, Starts::kServer)) << status;
    EXPECT_TRUE(WouldEndTheSame(status, Starts::kWorker)) << status;
  }
  const absl::Status passing[] = {absl::UnavailableError(""), absl::ResourceExhaustedError(""),
                                  absl::DeadlineExceededError(""), absl::InternalError("")};
  for (const absl::Status& status : passing) {
    EXPECT_FALSE(WouldEndTheSame(status, Starts::kServer)) << status;
    EXPECT_FALSE(WouldEndTheSame(status, Starts::kWorker)) << status;
  }
}

}  // namespace
}  // namespace macaw::cli
