// Color the words of a line of code. A language is a list of kinds of words and how they look, tried in order.
const LANGUAGES = (() => {
  const words = (list) => `\\b(?:${list.split(" ").join("|")})\\b`;
  const number = "\\b-?(?:0x[0-9A-Fa-f]+|\\d[\\d_]*(?:\\.\\d+)?(?:e[+-]?\\d+)?)\\b";
  const types = words("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 handle Buffer Tensor");
  const language = (...kinds) => ({ names: kinds.map(([name]) => name), look: new RegExp(kinds.map(([, look]) => `(${look})`).join("|"), "g") });
  const loops = language(["comment", "(?<=^|\\s)#.*$"], ["string", "\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`"],
    ["keyword", words("primfunc block def fn for in range parallel vectorized unrolled serial spatial reduction reads writes init let allocate if else where needed attrs annotations seq evaluate register arena global stack and or not")],
    ["type", types], ["name", "@[\\w.]+|%[\\w.]+"], ["call", "\\b[A-Za-z_][\\w.]*(?=\\()"], ["number", number]);
  return {
    tensor: loops, scheduled: loops, lowered: loops, operators: loops,
    numba: language(["comment", "#.*$"], ["string", "\"[^\"]*\"|'[^']*'"],
      ["keyword", words("def for in range if elif else while return import from as and or not is None True False pass break continue with prange")],
      ["type", types], ["name", "@[\\w.]+"], ["call", "\\b[A-Za-z_][\\w.]*(?=\\()"], ["number", number]),
    llvm: language(["comment", ";.*$"], ["string", "\"[^\"]*\""], ["label", "^[\\w.]+:"],
      ["type", "<\\d+ x \\w+>|\\[\\d+ x \\w+\\]|\\b(?:i\\d+|half|bfloat|float|double|ptr|void)\\b"],
      ["name", "[%@][\\w.$]+|!\\w*"],
      ["keyword", words("define declare internal distinct call br ret load store phi select freeze getelementptr inbounds add sub mul udiv sdiv urem srem fadd fsub fmul fdiv fneg icmp fcmp and or xor shl lshr ashr zext sext trunc fptosi sitofp uitofp fpext fptrunc bitcast insertelement extractelement shufflevector alloca fma to label align contract nsw nuw poison zeroinitializer splat noalias nonnull readonly nounwind noinline unreachable switch")],
      ["number", number]),
    assembly: language(["comment", "#.*$"], ["label", "^[\\w.$\"]+:"], ["directive", "^\\s+\\.\\w+"],
      ["keyword", "^\\s+[a-z][a-z0-9.]*"], ["name", "%[a-z]\\w*"], ["number", "\\$?-?\\b(?:0x[0-9a-f]+|\\d+)\\b"], ["call", "\\.L\\w+"]),
  };
})();

function highlighted(line, language) {
  const known = LANGUAGES[language], parts = [];
  if (!known || line.length > 2000) return [line];
  let at = 0;
  for (const found of line.matchAll(known.look)) {
    if (found.index > at) parts.push(line.slice(at, found.index));
    const kind = known.names[found.slice(1).findIndex((group) => group !== undefined)];
    parts.push(element("span", { class: "code-" + kind }, found[0]));
    at = found.index + found[0].length;
  }
  if (at < line.length) parts.push(line.slice(at));
  return parts;
}
