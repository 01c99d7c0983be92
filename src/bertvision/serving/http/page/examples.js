// Passages to begin with, written for this page.

export const EXAMPLES = [
  {
    name: "A weir",
    context:
      "The old weir at Coyle crosses the river just above the mill. It was built in 1887 by Hannah Coyle, an engineer who " +
      "had learned her trade on the canals of the north. Before that, farmers drew their water with buckets, and two dry " +
      "summers had ruined the harvest. The weir is made of grey stone and is forty metres long. After the flood of 1931 " +
      "the town council paid for a second gate, which is still opened by hand every spring.",
    question: "Who built the weir?",
  },
  {
    name: "A comet",
    context:
      "Comets are small bodies of ice and dust that travel around the Sun on long, narrow orbits. When a comet comes close to " +
      "the Sun, its ice turns into gas and carries dust away, which forms a bright head and one or two tails. The tails " +
      "always point away from the Sun, because sunlight and the solar wind push the gas and dust outward. Halley's Comet " +
      "returns about every 76 years and was last seen from Earth in 1986.",
    question: "How often does Halley's Comet return?",
  },
  {
    name: "No answer",
    context:
      "The lighthouse on Gull Point was finished in 1902. Its lamp burned oil until 1954, when an electric line was laid from " +
      "the village. The last keeper, Tom Arden, left the tower in 1988; since then the light has been switched on by a clock.",
    question: "How tall is the lighthouse?",
  },
];
