// What is wrong with how a page lies in its window, a line each. Contents of a box that scrolls may be wider than the box,
// if a hint below it says so. Letters of a picture must have their size, and must not lie on each other.
(() => {
  const wide = document.documentElement.clientWidth, faults = [];
  const name = (e) => `${e.tagName} ${e.id || e.getAttribute("class") || ""} "${(e.textContent || "").slice(0, 40)}"`;
  const shown = (e) => { const box = e.getBoundingClientRect(); return e.checkVisibility() && box.width > 0 && box.height > 0; };
  if (document.documentElement.scrollWidth > wide) faults.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const e of document.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    if (!shown(e) || (e.parentElement.closest(".scroll") && !e.classList.contains("scroll"))) continue;
    if (box.right > wide + 1 || box.left < -1) faults.push(`${name(e)} reaches from ${box.left} to ${box.right}`);
  }
  for (const box of document.querySelectorAll("div, section, pre")) {
    if (!shown(box) || box.scrollWidth <= box.clientWidth + 1 || getComputedStyle(box).overflowX === "visible") continue;
    const hint = box.nextElementSibling;
    if (!hint || !hint.classList.contains("hint") || !shown(hint)) faults.push(`${name(box)} scrolls and does not say so`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (!shown(svg) || svg.closest(".picture")) continue;
    const outer = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")];
    texts.forEach((text, k) => {
      const a = text.getBoundingClientRect();
      if (a.height < 9 || a.height > 20) faults.push(`${name(text)} is ${a.height} high`);
      if (a.left < outer.left - 1 || a.right > outer.right + 1 || a.bottom > outer.bottom + 2) faults.push(`${name(text)} lies outside its picture`);
      for (const other of texts.slice(k + 1)) {
        const b = other.getBoundingClientRect();
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) faults.push(`${name(text)} lies on ${name(other)}`);
      }
    });
  }
  return faults;
})()
