"use strict";
// Behind the page's own script. While nobody answers, the page says so and keeps what it has.
{
  const about = document.getElementById("about");
  let seen = null;
  const look = async () => {
    try {
      const version = await (await fetch("version")).text();
      if (version !== seen) {
        const answer = await fetch("data.json");
        if (!answer.ok) throw new Error(await answer.text());
        update(await answer.json());
        seen = version;
      }
      about.textContent = about.textContent.replace(/ · .*/, "") + " · live";
    } catch (error) {
      about.textContent = about.textContent.replace(/ · .*/, "") + " · macaw watch does not answer";
    }
    setTimeout(look, 1000);
  };
  look();
}
