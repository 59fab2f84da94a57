import{a}from"./chunk-5DMFCUXP.js";export{a as messages};
