// Two texts, line by line: side by side where there is room, otherwise one below the other. Shown as text only.
export default {
  template: `
    <div class="difference" data-testid="difference" role="table" :aria-label="left + ' and ' + right">
      <div class="difference-row head" role="row"><b role="columnheader">{{ left }}</b><b role="columnheader">{{ right }}</b></div>
      <template v-for="(line, place) in lines" :key="place">
        <div v-if="line.kind === 'skipped'" class="difference-row skipped" role="row"><span role="cell">⋯ {{ line.text }}</span></div>
        <div v-else class="difference-row" :class="line.kind" role="row">
          <div v-for="side in ['left', 'right']" :key="side" class="side" :class="[side, { none: !line[side] }]" role="cell">
            <template v-if="line[side]"><i aria-hidden="true">{{ line[side][0] }}</i><b class="sign" aria-hidden="true">{{ sign(line, side) }}</b
              ><code><span v-if="name(line, side)" class="visually-hidden">{{ name(line, side) }}</span>{{ line[side][1] }}<mark v-if="line[side][2]">{{ line[side][2] }}</mark>{{ line[side][3] }}</code></template>
          </div>
        </div>
      </template>
    </div>`,
  props: { lines: Array, left: String, right: String },
  methods: {
    sign(line, side) {
      return line.kind === "same" ? " " : side === "left" ? "−" : "+";
    },
    name(line, side) {
      return line.kind === "same" ? "" : side === "left" ? "removed: " : "added: ";
    },
  },
};
