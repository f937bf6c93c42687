// A schema, coloured by its tokens, with a button that copies it. Everything is shown as text.
export default {
  template: `
    <div class="schema-text">
      <button type="button" class="quiet-button" data-testid="copy-schema" @click="copyText">{{ copied ? "Copied" : "Copy" }}</button>
      <pre data-testid="schema-text" tabindex="0"><template v-for="token in tokens"><span
        v-if="token[0] !== 'plain'" :class="'json-' + token[0]">{{ token[1] }}</span><template v-else>{{ token[1] }}</template></template></pre>
    </div>`,
  props: { tokens: Array, copy: String },
  data: () => ({ copied: false }),
  methods: {
    async copyText() {
      await navigator.clipboard?.writeText(this.copy);
      this.copied = true;
      setTimeout(() => (this.copied = false), 1200);
    },
  },
};
