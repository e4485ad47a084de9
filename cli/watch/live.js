"use strict";
// Behind the page's own script. While nobody answers, the page says so and keeps what it has; while
// the answer is an error, it says what is wrong.
{
  const about = document.getElementById("about");
  const say = (state) => {
    about.textContent = about.textContent.replace(/ · .*/, "") + " · " + state;
  };
  const textOf = async (answering) => {
    let answer, text;
    try {
      answer = await answering;
      text = await answer.text();
    } catch (error) {
      throw new Error("macaw watch does not answer");
    }
    if (!answer.ok) throw new Error(text.trim().split("\n")[0]);
    return text;
  };
  let seen = null;
  const look = async () => {
    try {
      const version = await textOf(fetch("version"));
      if (version !== seen) {
        update(JSON.parse(await textOf(fetch("data.json"))));
        seen = version;
      }
      say("live");
    } catch (error) {
      say(error.message);
    }
    setTimeout(look, 1000);
  };
  look();
}
