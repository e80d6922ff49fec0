// Short code in tables, such as a name, is not broken at its hyphens either.
document.addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll("td code"))
    if (code.textContent.length < 30 && !code.textContent.includes(" ")) code.classList.add("name");
});
